package config_test

import (
	"testing"

	"github.com/kubebridge/bridge/config"
)

func TestBucket(t *testing.T) {
	c, err := config.Load(config.Options{File: "view.yaml", Data: []byte(`cluster: prod
informers:
  - name: all
    resources: ["*"]
    exclude: [leases.coordination.k8s.io]
    ignoreHeartbeats: true
  - name: leases
    resources: [leases.coordination.k8s.io]
sinks:
  - name: now
    nats: {mode: kv, bucket: K8S, stream: {replicas: 1}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	n := c.Sinks[0].NATS
	if n.Stream.Name != "KV_K8S" || n.Subject != "$KV.K8S.{group}.{resource}.{namespace}.{name}" {
		t.Errorf("stream %s, subject %s", n.Stream.Name, n.Subject)
	}
	t.Run("what is shown can be loaded", func(t *testing.T) {
		again, err := config.Load(config.Options{File: "shown.yaml", Data: []byte(c.String())})
		if err != nil {
			t.Fatalf("%v\n%s", err, c)
		}
		if again.String() != c.String() {
			t.Errorf("%s\nbecame\n%s", c, again)
		}
	})
}
