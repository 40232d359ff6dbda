package deploy_test

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what is made of something else: schema, goldens, kustomize's base, copies")

const chartDir = "helm/bridge"

// values are values of the chart.
type values = map[string]any

func readValues(t *testing.T, text string) values {
	t.Helper()
	v, err := common.ReadValues([]byte(text))
	must(t, err)
	return v
}

// render is what `helm template bridge --namespace streaming` makes of values.
func render(t *testing.T, v values) (string, error) {
	t.Helper()
	return renderWith(t, v, util.ToRenderValues)
}

// withImage names an image, without which the chart of a source tree is refused.
func withImage(v values) values {
	if _, ok := v["image"]; ok {
		return v
	}
	if v = maps.Clone(v); v == nil {
		v = values{}
	}
	v["image"] = values{"tag": "0.0.0"}
	return v
}

type toRenderValues = func(chart.Charter, map[string]any, common.ReleaseOptions, *common.Capabilities) (common.Values, error)

func renderWith(t *testing.T, v values, toRender toRenderValues) (string, error) {
	t.Helper()
	return renderFiles(t, v, toRender, func(name string) bool { return !isHook(name) })
}

// isHook reports whether a template is one of `helm test`, which `helm install` leaves out.
func isHook(name string) bool { return strings.Contains(name, "/templates/tests/") }

// renderHooks is what `helm test` applies.
func renderHooks(t *testing.T, v values) string {
	t.Helper()
	text, err := renderFiles(t, v, util.ToRenderValues, isHook)
	must(t, err)
	return text
}

// renderNotes is what `helm install` prints.
func renderNotes(t *testing.T, v values) (string, error) {
	t.Helper()
	loaded, err := loader.LoadDir(chartDir)
	must(t, err)
	release := common.ReleaseOptions{Name: "bridge", Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(loaded, withImage(v), release, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(loaded, top)
	return files["bridge/templates/NOTES.txt"], err
}

func renderFiles(t *testing.T, v values, toRender toRenderValues, wanted func(string) bool) (string, error) {
	t.Helper()
	loaded, err := loader.LoadDir(chartDir)
	must(t, err)
	release := common.ReleaseOptions{Name: "bridge", Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := toRender(loaded, withImage(v), release, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(loaded, top)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); strings.HasSuffix(name, ".yaml") && text != "" && wanted(name) {
			out.WriteString("---\n" + strings.TrimPrefix(text, "---\n") + "\n")
		}
	}
	return randomKey.ReplaceAllString(out.String(), "${1}"+base64.StdEncoding.EncodeToString([]byte("a key that is not random"))), nil
}

// randomKey matches the key that the chart makes.
var randomKey = regexp.MustCompile(`(?m)^(  key: )[A-Za-z0-9+/]{64}$`)

func mustRender(t *testing.T, v values) string {
	t.Helper()
	text, err := render(t, v)
	must(t, err)
	return text
}

// cases are the main combinations of values, by name.
func cases(t *testing.T) map[string]values {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*-values.yaml"))
	must(t, err)
	found := map[string]values{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if strings.HasPrefix(filepath.Base(file), "standby") && !knows(t, "standby") {
			continue
		}
		found[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = withoutMissing(t, readValues(t, string(text)))
	}
	return found
}

// knows reports whether the configuration of this bridge has a section.
func knows(t *testing.T, section string) bool {
	t.Helper()
	schema, err := readJSON(configSchema)
	must(t, err)
	_, ok := schema["properties"].(map[string]any)[section]
	return ok
}

// withoutMissing turns off what the chart has no file for.
func withoutMissing(t *testing.T, v values) values {
	t.Helper()
	for key, file := range monitored {
		if _, err := os.Stat(filepath.Join(chartDir, "files", file)); err != nil {
			delete(v, key)
		}
	}
	return v
}

func TestTheChartIsLinted(t *testing.T) {
	all := cases(t)
	all["defaults"] = nil
	for name, v := range all {
		t.Run(name, func(t *testing.T) {
			for _, m := range lint.RunAll(chartDir, withImage(v), namespace).Messages {
				if m.Severity >= support.WarningSev || !strings.Contains(m.Err.Error(), "icon is recommended") {
					t.Error(m)
				}
			}
		})
	}
}

func TestTheChartRenders(t *testing.T) {
	for name, v := range cases(t) {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join("testdata", "chart", name+".golden.yaml"), mustRender(t, v))
		})
	}
}

// Helm carries all numbers as floating point, so a large one could come out as 1e+10, which the
// bridge does not take.
func TestChartConfigRoundTrip(t *testing.T) {
	for name, v := range cases(t) {
		t.Run(name, func(t *testing.T) {
			if v["existingConfig"] != nil {
				t.Skip("it lies somewhere else")
			}
			configMap := find(t, objects(t, mustRender(t, v)), "ConfigMap", "-dashboard")
			text, _ := configMap.Object["data"].(map[string]any)["bridge.yaml"].(string)
			_, err := load(t, text)
			must(t, err)
			if strings.Contains(text, "e+") {
				t.Errorf("a number is written with an exponent:\n%s", text)
			}
			var got values
			must(t, yaml.Unmarshal([]byte(text), &got))
			if want, _ := v["config"].(values); !covers(got, want) {
				t.Errorf("got %v, want all of %v", got, want)
			}
		})
	}
}

// covers reports whether everything of want is in got.
func covers(got, want any) bool {
	wanted, ok := want.(values)
	if !ok {
		return equal(got, want)
	}
	has, _ := got.(values)
	for key, w := range wanted {
		if !covers(has[key], w) {
			return false
		}
	}
	return true
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run go test . -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run go test . -update and look at the difference\ngot:\n%s", file, got)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The NetworkPolicy allows what docs/operations.md lists, and no more: outwards DNS, the API server
// and the addresses in config, inwards the admin port for the namespace monitoring.
func TestEgress(t *testing.T) {
	for name, test := range map[string]struct {
		values string
		want   string // ports beside DNS and the API server; "everywhere" for all
	}{
		"defaults of schemes":     {`config: {sinks: [{name: a, nats: {}}, {name: b, http: {url: "https://u:p@h/x:1", deadLetterURL: "http://h"}}]}`, "4222 80"},
		"ports of addresses":      {`config: {tracing: {endpoint: "http://otel:4318"}, sinks: [{name: k, kafka: {brokers: ["a:9093", "[fd00::1]:9094"]}}]}`, "9093 9094 4318"},
		"a name from a variable":  {`config: {sinks: [{name: k, kafka: {brokers: ["${HOST}:9095"]}}]}`, "9095"},
		"a port from a variable":  {`config: {sinks: [{name: k, kafka: {brokers: ["${BROKER}"]}}]}`, "everywhere"},
		"an embedded server":      {`config: {sinks: [{name: own, nats: {embedded: true}}]}`, ""},
		"unknown variables":       {`{config: {sinks: [{name: own, nats: {}}]}, envFrom: [{secretRef: {name: x}}]}`, "everywhere"},
		"streams of audit events": {`config: {sinks: [{name: h, history: {audit: {streams: [{from: "nats://a/S"}, {from: "kafka://b:9093/t"}]}}}]}`, "4222 9093"},
		"a proxy":                 {`{config: {sinks: [{name: own, nats: {}}]}, env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]}`, "everywhere"},
		"no proxy":                {`{config: {sinks: [{name: own, nats: {}}]}, env: [{name: NO_PROXY, value: "h"}]}`, "4222"},
		"an endpoint of traces":   {`{config: {sinks: [{name: own, nats: {}}]}, env: [{name: BRIDGE_TRACING_ENDPOINT, value: "http://h:1"}]}`, "everywhere"},
	} {
		t.Run(name, func(t *testing.T) {
			v := readValues(t, test.values)
			config, _ := v["config"].(values)
			config["informers"] = []any{values{"name": "i", "resources": []any{"pods"}}}
			v["image"] = values{"tag": "1"}
			list := objects(t, mustRender(t, v))
			policy := as[networkingv1.NetworkPolicy](t, find(t, list, "NetworkPolicy", ""))
			if got, want := allowedOutwards(&policy.Spec), allowedFor(test.want); got != want {
				t.Errorf("outwards %s, want %s", got, want)
			}
			const in = `[{"ports":[{"protocol":"TCP","port":"admin"}],` +
				`"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]}]`
			if got, err := json.Marshal(policy.Spec.Ingress); err != nil || string(got) != in {
				t.Errorf("inwards %s (%v), want %s", got, err, in)
			}
		})
	}
}

func allowedFor(ports string) string {
	if ports == "everywhere" {
		return ports
	}
	list := []string{"TCP 53", "UDP 53", "TCP 443", "TCP 6443"}
	for port := range strings.FieldsSeq(ports) {
		list = append(list, "TCP "+port)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// allowedOutwards are the ports of a policy's rule, each once.
func allowedOutwards(spec *networkingv1.NetworkPolicySpec) string {
	if !slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		return "everywhere"
	}
	var list []string
	for _, rule := range spec.Egress {
		for _, port := range rule.Ports {
			list = append(list, string(*port.Protocol)+" "+port.Port.String())
		}
		if len(rule.To) > 0 || len(rule.Ports) == 0 {
			list = append(list, "another rule")
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// cert-manager makes the Secret of the admin server's certificate, for the names by which
// Prometheus and `helm test` reach the pods; what asks it then uses TLS.
func TestAdminTLSOfAnIssuer(t *testing.T) {
	v := readValues(t, `
config: {sinks: [{name: audit, nats: {servers: ["nats://nats.nats:4222"]}}]}
adminTLS: {issuerRef: {kind: ClusterIssuer, name: internal}}
serviceMonitor: {enabled: true}`)
	text := mustRender(t, v)
	certificate := find(t, objects(t, text), "Certificate", "-none")
	if names := fmt.Sprint(certificate.Object["spec"]); !strings.Contains(names, "bridge.streaming.svc *.bridge.streaming.svc") ||
		!strings.Contains(names, "secretName:bridge-admin") {
		t.Error(names)
	}
	for _, want := range []string{
		"certFile: /etc/bridge/admin/tls.crt", "secret: {secretName: bridge-admin, defaultMode: 0440}",
		"scheme: https\n", "serverName: bridge.streaming.svc", "key: ca.crt",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := strings.Count(text, "scheme: HTTPS"); got != 2 {
		t.Errorf("%d probes use TLS, want 2", got)
	}
	if hooks := renderHooks(t, v); !strings.Contains(hooks, "--admin-ca=/etc/bridge/admin/ca.crt") {
		t.Error(hooks)
	}
}

// Without a selection of its own, the role has no wildcard and no Secrets.
func TestDefaultRole(t *testing.T) {
	text := mustRender(t, readValues(t, `config: {sinks: [{name: audit, nats: {servers: ["nats://nats.nats:4222"]}}]}`))
	role := find(t, objects(t, text), "ClusterRole", "-none")
	if rules := fmt.Sprint(role.Object["rules"]); strings.Contains(rules, "*") || strings.Contains(rules, "secrets") ||
		!strings.Contains(rules, "deployments") {
		t.Error(rules)
	}
}
