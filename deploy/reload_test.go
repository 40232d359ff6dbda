package deploy_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubebridge/bridge/config"
)

// reloadable is a configuration that the edits of the test below change.
const reloadable = `
config:
  cluster: prod
  shutdownTimeout: 20s
  informers: [{name: workloads, resources: [pods]}]
  sinks:
    - {name: audit, nats: {servers: ["nats://nats.nats:4222"]}}
    - {name: own, nats: {embedded: true, servers: ["nats://127.0.0.1:4222"], storeDir: /var/lib/bridge/nats}}
`

// makesPods reports whether another pod template comes of other values.
func makesPods(t *testing.T, before, after string) bool {
	t.Helper()
	template := func(text string) string {
		v := readValues(t, text)
		set := as[appsv1.StatefulSet](t, find(t, objects(t, mustRender(t, v)), "StatefulSet", ""))
		out, err := yaml.Marshal(set.Spec.Template)
		must(t, err)
		return string(out)
	}
	return template(before) != template(after)
}

// A new pod is made of exactly those changes that the bridge says it can't make while it runs,
// forth or back.
func TestRolloutOfConfiguration(t *testing.T) {
	for _, edit := range []struct{ what, before, after string }{
		{"another informer", "informers: [", "informers: [{name: more, resources: [services]}, "},
		{"another resource", "[pods]", "[pods, services]"},
		{"more redaction", "[pods]", "[pods], redact: [spec.x]"},
		{"redacted variables", "[pods]", "[pods], redactEnv: true"},
		{"another sink of an address", "  sinks:\n", "  sinks:\n    - {name: more, nats: {servers: [\"nats://nats.nats:4222\"], mode: core}}\n"},
		{"a sink that loses TLS", "nats://nats.nats:4222", "tls://nats.nats:4222"},
		{"another sink", "  sinks:\n", "  sinks:\n    - {name: lake, kafka: {brokers: [\"kafka:9092\"]}}\n"},
		{"another address of a sink", "nats.nats:4222", "nats.other:4222"},
		{"another limit of a sink", "{name: audit,", "{name: audit, rateLimit: {perSecond: 100},"},
		{"another limit of a sink with a server of its own", "{name: own,", "{name: own, rateLimit: {perSecond: 100},"},
		{"another level of the log", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  log: {level: debug}"},
		{"another format of the log", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  log: {format: text}"},
		{"another address of a server of its own", "127.0.0.1:4222", "127.0.0.1:4333"},
		{"another directory of a server of its own", "/bridge/nats", "/bridge/jetstream"},
		{"a server of its own less", `    - {name: own, nats: {embedded: true, servers: ["nats://127.0.0.1:4222"], storeDir: /var/lib/bridge/nats}}`, ""},
		{"another cluster", "cluster: prod", "cluster: test"},
		{"another drain", "shutdownTimeout: 20s", "shutdownTimeout: 21s"},
		{"another state", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  state: {commitInterval: 300ms}"},
		{"another port", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  admin: {address: \":9090\"}"},
		{"another limit of the API server", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  kubernetes: {qps: 7}"},
		{"another interval of looking", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  reloadInterval: 7s"},
		{"traces", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  tracing: {endpoint: \"http://otel:4318\"}"},
		{"a shard", "  shutdownTimeout: 20s", "  shutdownTimeout: 20s\n  shard: 0/2"},
	} {
		t.Run(edit.what, func(t *testing.T) {
			changed := strings.Replace(reloadable, edit.before, edit.after, 1)
			if changed == reloadable {
				t.Fatal("the edit changes nothing")
			}
			running, err := load(t, configurationOf(t, reloadable))
			must(t, err)
			next, err := load(t, configurationOf(t, changed))
			must(t, err)
			made := makesPods(t, reloadable, changed)
			forth, back := config.NewGuard(running).Check(next), config.NewGuard(next).Check(running)
			if made != (forth != nil || back != nil) {
				t.Errorf("a new pod is made: %v; the bridge says %v, and of the way back %v", made, forth, back)
			}
		})
	}
}

// configurationOf is what the chart puts into the ConfigMap.
func configurationOf(t *testing.T, text string) string {
	t.Helper()
	configMap := find(t, objects(t, mustRender(t, readValues(t, text))), "ConfigMap", "-dashboard")
	return configMap.Object["data"].(map[string]any)["bridge.yaml"].(string)
}

// Every change makes a new pod where nothing is read again.
func TestRolloutWithoutReload(t *testing.T) {
	for what, values := range map[string]string{
		"as the values want it":    minimal + "onConfigChange: restart\n",
		"where files are not read": strings.Replace(minimal, "config:\n", "config:\n  reloadInterval: 0s\n", 1),
	} {
		if changed := strings.Replace(values, "pods", "services", 1); !makesPods(t, values, changed) {
			t.Errorf("%s: another resource makes no new pod", what)
		}
	}
}

func TestReplicasFollowToo(t *testing.T) {
	values := strings.Replace(minimal, "config:\n", "config:\n  standby: {enabled: true}\n", 1)
	if changed := strings.Replace(values, "pods", "services", 1); changed == values || makesPods(t, values, changed) {
		t.Error("another resource makes new pods")
	}
}

// A change outside the configuration makes a new pod.
func TestRolloutOfOtherValues(t *testing.T) {
	for _, more := range []string{"env: [{name: A, value: b}]", "image: {tag: v9}", "secrets: [{name: nats}]", "resources: {limits: {memory: 2Gi}}"} {
		if !makesPods(t, minimal, minimal+more+"\n") {
			t.Errorf("%s makes no new pod", more)
		}
	}
}

// The configuration is mounted so that the pod sees its changes.
// A volume with a subPath is never brought up to date.
func TestConfigurationMount(t *testing.T) {
	set := as[appsv1.StatefulSet](t, find(t, objects(t, mustRender(t, readValues(t, minimal))), "StatefulSet", ""))
	for _, m := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s is mounted with a subPath", m.Name)
		}
	}
}
