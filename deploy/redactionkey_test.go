package deploy_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// secretsOf lets templates look up Secrets in a cluster that has some objects.
type secretsOf []runtime.Object

func (s secretsOf) GetClientFor(_, _ string) (dynamic.NamespaceableResourceInterface, bool, error) {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), s...)
	return client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}), true, nil
}

func TestRedactionKeyOfTheChart(t *testing.T) {
	key := func(t *testing.T, text string, there ...runtime.Object) string {
		t.Helper()
		loaded, err := loader.LoadDir(chartDir)
		must(t, err)
		top, err := util.ToRenderValues(loaded, withImage(readValues(t, text)), common.ReleaseOptions{Name: "bridge", Namespace: namespace}, nil)
		must(t, err)
		files, err := engine.RenderWithClientProvider(loaded, top, secretsOf(there))
		must(t, err)
		_, secret, _ := strings.Cut(files["bridge/templates/redactionkey.yaml"], "\n  key: ")
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
		must(t, err)
		return string(decoded)
	}
	const two = "replicas: 2\nconfig: {standby: {enabled: true}, sinks: [{name: a, nats: {servers: ['nats://n:4222']}}]}"
	t.Run("an installation makes a random one", func(t *testing.T) {
		if one, other := key(t, two), key(t, two); len(one) != 48 || one == other {
			t.Errorf("%q and %q", one, other)
		}
	})
	t.Run("an upgrade keeps it", func(t *testing.T) {
		there := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "bridge-redaction", "namespace": namespace},
			"data": map[string]any{"key": base64.StdEncoding.EncodeToString([]byte("the key of the first installation"))},
		}}
		if got := key(t, two, there); got != "the key of the first installation" {
			t.Errorf("%q", got)
		}
	})
	t.Run("one replica, or a file of the operator's, needs none", func(t *testing.T) {
		for _, text := range []string{
			strings.Replace(two, "replicas: 2", "replicas: 1", 1), strings.Replace(two, "config: {", "config: {redaction: {keyFile: /etc/bridge/secrets/key/key}, ", 1),
		} {
			if got := key(t, text); got != "" {
				t.Errorf("%s: %q", text, got)
			}
		}
	})
}
