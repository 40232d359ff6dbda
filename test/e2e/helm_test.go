//go:build helm

// Helm and what it needs take minutes to build with the race detector: the everyday tests do
// without.

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	action3 "helm.sh/helm/v3/pkg/action"
	chart3 "helm.sh/helm/v3/pkg/chart"
	action4 "helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chart4 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	release4 "helm.sh/helm/v4/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

const (
	helmChart  = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: by-{{ .Release.Name }}}\ndata: {version: {{ .Chart.Version | quote }}}\n"
	secretsOut = "informers:\n  - {name: app, resources: [secrets, configmaps], namespaces: [\"${NS}\"], secrets: send}\n" + kept
	secretsIn  = "informers:\n  - {name: app, resources: [secrets, configmaps], namespaces: [\"${NS}\"]}\n" + kept
)

// helm is Helm's configuration for a cluster, or for a past one.
func (l *lab) helm(path string) *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &path, &l.namespace
	return flags
}

func (l *lab) helm3(kubeconfig string) *action3.Configuration {
	l.t.Helper()
	c := new(action3.Configuration)
	must(l.t, c.Init(l.helm(kubeconfig), l.namespace, "secret", func(string, ...any) {}))
	return c
}

func (l *lab) helm4(kubeconfig string) *action4.Configuration {
	l.t.Helper()
	c := action4.NewConfiguration()
	must(l.t, c.Init(l.helm(kubeconfig), l.namespace, "secret"))
	return c
}

// Helm reads the releases of the past: it keeps them in Secrets, so these must have been recorded
// as they are.
func TestHelm(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	b, redacted := l.bridge("bridge", secretsOut, with(map[string]string{"BRIDGE_ALLOW_SECRETS": "true"})), l.bridge("redacted", secretsIn)
	l.start(b)
	l.start(redacted)
	template := []byte(helmChart)
	install3 := action3.NewInstall(l.helm3(l.Kubeconfig))
	install3.ReleaseName, install3.Namespace = "three", l.namespace
	_, err := install3.RunWithContext(l.ctx, &chart3.Chart{
		Metadata: &chart3.Metadata{APIVersion: "v2", Name: "small", Version: "1.0.0"}, Templates: []*chart3.File{{Name: "templates/a.yaml", Data: template}},
	}, nil)
	must(t, err)
	install4 := action4.NewInstall(l.helm4(l.Kubeconfig))
	install4.ReleaseName, install4.Namespace, install4.WaitStrategy = "four", l.namespace, kube.HookOnlyStrategy
	_, err = install4.RunWithContext(l.ctx, &chart4.Chart{
		Metadata: &chart4.Metadata{APIVersion: "v2", Name: "small", Version: "4.0.0"}, Templates: []*chartcommon.File{{Name: "templates/a.yaml", Data: template}},
	}, nil)
	must(t, err)
	l.createConfigMap("marker", "1")
	marker, err := l.client.CoreV1().ConfigMaps(l.namespace).Get(l.ctx, "marker", metav1.GetOptions{})
	must(t, err)
	l.recorded(b, "cm/marker")
	l.recorded(redacted, "cm/marker")
	_, err = action3.NewUninstall(l.helm3(l.Kubeconfig)).Run("three")
	must(t, err)

	past := filepath.Join(l.dir, "past.yaml")
	l.served(b, "--at", marker.ResourceVersion)
	list3 := action3.NewList(l.helm3(past))
	list3.All = true
	list3.SetStateMask()
	releases, err := list3.Run()
	must(t, err)
	if len(releases) != 2 {
		t.Errorf("Helm 3 has %d releases of the past, want 2", len(releases))
	}
	got3, err := action3.NewGet(l.helm3(past)).Run("three")
	must(t, err)
	if got3.Chart.Metadata.Version != "1.0.0" || !strings.Contains(got3.Manifest, "by-three") {
		t.Errorf("Helm 3 has %s:\n%s", got3.Chart.Metadata.Version, got3.Manifest)
	}
	list4 := action4.NewList(l.helm4(past))
	list4.All = true
	list4.SetStateMask()
	later, err := list4.Run()
	must(t, err)
	if len(later) != 2 {
		t.Errorf("Helm 4 has %d releases of the past, want 2", len(later))
	}
	got4, err := action4.NewGet(l.helm4(past)).Run("four")
	must(t, err)
	accessor, err := release4.NewAccessor(got4)
	must(t, err)
	if !strings.Contains(accessor.Manifest(), "by-four") {
		t.Errorf("Helm 4 has\n%s", accessor.Manifest())
	}
	l.stop(b)
	t.Run("redacted Secrets are no releases, and a warning says so", func(t *testing.T) {
		cmd := l.kubectl(t, "redacted.yaml", "get", "secrets", "-l", "owner=helm")
		l.servedAs("redacted.yaml", redacted, "--at", marker.ResourceVersion)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "values of Secrets are redacted in this history") {
			t.Errorf("%v: %s", err, out)
		}
	})
	l.stop(redacted)
}
