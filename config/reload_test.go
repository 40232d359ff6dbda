package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

// What a running bridge can become by a reload, and what it can't.
func TestReloadableChanges(t *testing.T) {
	const before = `
cluster: here
informers:
  - {name: a, resources: [pods]}
sinks:
  - {name: own, nats: {embedded: true}}
  - {name: lake, kafka: {brokers: ["k:9092"]}}
`
	for name, test := range map[string]struct {
		replace, by string
		problems    []string
	}{
		"nothing":             {"", "", nil},
		"an informer":         {"{name: a, resources: [pods]}", "{name: b, resources: [nodes], snapshot: never}", nil},
		"a sink":              {`{brokers: ["k:9092"]}`, `{brokers: ["k:9092"], topic: t}`, nil},
		"a stream":            {"{embedded: true}", "{embedded: true, stream: {maxAge: 1h}}", nil},
		"the log level":       {"cluster: here", "cluster: here\nlog: {level: debug}", nil},
		"the cluster":         {"cluster: here", "cluster: there", []string{`bridge.yaml:2: cluster: can't be changed while the bridge runs, where it is "here": restart it`}},
		"the state, the pace": {"cluster: here", "cluster: here\nkubernetes: {qps: 5}\nstate:\n  dir: other", []string{"bridge.yaml:3: kubernetes.qps: can't be changed while the bridge runs, where it is 50", "bridge.yaml:5: state.dir: can't be changed"}},
		"the key's file":      {"cluster: here", "cluster: here\nredaction: {keyFile: key}", []string{`bridge.yaml:3: redaction.keyFile: can't be changed while the bridge runs, where it is ""`}},
		"an embedded server":  {"{embedded: true}", `{embedded: true, servers: ["nats://127.0.0.1:4333"]}`, []string{"sinks[0].nats: servers and storeDir", "sinks[0]: sending to 127.0.0.1:4333"}},
		"one that goes":       {"{embedded: true}", `{servers: ["nats://127.0.0.1:4222"]}`, []string{"sinks: the embedded NATS server of sink own can't be taken away"}},
		"one of another name": {"name: own", "name: mine", []string{"sinks[0].nats.embedded: an embedded NATS server can't be added", "sinks: the embedded NATS server of sink own can't be taken away"}},
	} {
		t.Run(name, func(t *testing.T) {
			next := mustLoadText(t, strings.Replace(before, test.replace, test.by, 1))
			got := problemsOf(config.NewGuard(mustLoadText(t, before)).Check(next))
			if !slices.EqualFunc(got, test.problems, strings.Contains) {
				t.Errorf("got %q, want %q", got, test.problems)
			}
		})
	}
}
