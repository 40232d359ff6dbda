package deploy_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// minimal are values that render, for tests that add to them. Its last line is that of the only
// sink.
const minimal = `
config:
  informers: [{name: workloads, resources: [pods, deployments.apps]}]
  sinks: [{name: audit, nats: {servers: ["nats://nats.nats:4222"]}}]
`

// What is wrong must be reported in words, with its place, before anything is installed: the golden
// file is read by people.
func TestWrongValues(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct{ what, values string }{
		{"no sinks", `config: {informers: [{name: a, resources: [pods]}]}`},
		{"a misspelt value", minimal + "replica: 2"},
		{"a misspelt key of the configuration", `config: {sinks: [{name: s, nats: {ulr: "nats://n"}}]}`},
		{"a value of the wrong type", `config: {kubernetes: {burst: many}, sinks: [{name: s, stdout: {}}]}`},
		{"a duration without a unit", `config: {shutdownTimeout: 15, sinks: [{name: s, stdout: {}}]}`},
		{"no such choice", `config: {state: {mode: dsk}, sinks: [{name: s, stdout: {}}]}`},
		{"a list that is none", `config: {informers: {name: a}, sinks: [{name: s, stdout: {}}]}`},
		{"something required is missing", `config: {informers: [{name: a}], sinks: [{name: s, stdout: {}}]}`},
		{"a namespace that Helm takes for false", `config: {informers: [{name: a, resources: [pods], namespaces: [n]}], sinks: [{name: s, stdout: {}}]}`},
		{"several at once", `config: {informers: [{nam: a}], sinks: [{name: s, stdout: {}}]}`},
		{"a password in clear", `config: {sinks: [{name: s, nats: {username: u, password: hunter2}}]}`},
		{"a token in clear", `config: {sinks: [{name: s, nats: {token: hunter2}}]}`},
		{"a password in a URL", `config: {sinks: [{name: s, nats: {servers: ["nats://u:hunter2@nats:4222"]}}]}`},
		{"a password with a comma in a URL", `config: {sinks: [{name: s, nats: {servers: ["nats://u:hunter2,x@nats:4222"]}}]}`},
		{"values of Secrets without allowSecrets", `config: {informers: [{name: a, resources: [secrets], secrets: send}], sinks: [{name: s, stdout: {}}]}`},
		{"state beside the volume", `config: {state: {dir: /data}, sinks: [{name: s, stdout: {}}]}`},
		{"state on the root of the volume", `config: {state: {dir: /var/lib/bridge}, sinks: [{name: s, stdout: {}}]}`},
		{"no volume", `{config: {sinks: [{name: s, stdout: {}}]}, persistence: {enabled: false}}`},
		{"killed while it drains", `{config: {shutdownTimeout: 2m, sinks: [{name: s, stdout: {}}]}}`},
		{"two bridges that would both send", minimal + "replicas: 2"},
		{"more bridges than shards", `{replicas: 3, config: {shard: auto/2, sinks: [{name: s, stdout: {}}]}}`},
		{"a shard without a bridge", `{replicas: 2, config: {shard: auto/3, standby: {enabled: true}, sinks: [{name: s, stdout: {}}]}}`},
		{"the same shard twice", `{replicas: 2, config: {shard: 0/2, sinks: [{name: s, stdout: {}}]}}`},
		{"shards from the environment", `{env: [{name: BRIDGE_SHARD, value: 0/2}], config: {standby: {enabled: true}, sinks: [{name: s, stdout: {}}]}}`},
		{"shards in a variable", `{config: {shard: "${SHARD}", standby: {enabled: true}, sinks: [{name: s, stdout: {}}]}}`},
		{"a volume that several nodes write", minimal + "persistence: {accessModes: [ReadWriteMany]}"},
		{"a short name", `config: {informers: [{name: a, resources: [pods, deploy]}], sinks: [{name: s, stdout: {}}]}`},
		{"a resource in a variable", `config: {informers: [{name: a, resources: ["${WHAT}"]}], sinks: [{name: s, stdout: {}}]}`},
		{"resources from the environment", minimal + `env: [{name: BRIDGE_INFORMERS_0_RESOURCES, value: secrets}]`},
		{"rights of another configuration", minimal + `rbac: {selection: "0", roles: [{namespace: "", rules: []}]}`},
		{"an image that was never published", minimal + `image: {pullPolicy: Always}`},
		{"one volume for two bridges", `{replicas: 2, persistence: {existingClaim: c}, config: {standby: {enabled: true}, sinks: [{name: s, stdout: {}}]}}`},
		{"two files of one configuration", minimal + `existingConfig: {configMap: a, secret: b}`},
		{"a key for a file that is not the chart's", `{replicas: 2, existingConfig: {secret: a}, config: {standby: {enabled: true}}}`},
		{"no such alert", minimal + `prometheusRule: {enabled: true, disabled: [BridgeSinkAway]}`},
		{"no account", minimal + `serviceAccount: {create: false}`},
	} {
		_, err := render(t, readValues(t, c.values))
		if err == nil {
			t.Errorf("%s: it renders", c.what)
			continue
		}
		if !strings.HasSuffix(c.what, "in a URL") && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the secret is in the error: %v", c.what, err)
		}
		out.WriteString("# " + c.what + "\n" + strings.TrimSpace(err.Error()) + "\n\n")
	}
	golden(t, filepath.Join("testdata", "refusals.golden"), out.String())
}
