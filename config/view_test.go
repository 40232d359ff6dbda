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

func TestView(t *testing.T) {
	c, err := config.Load(config.Options{File: "view.yaml", Data: []byte(`cluster: prod
informers:
  - {name: all, resources: ["*"]}
sinks:
  - name: table
    kafka: {brokers: ["kafka:9092"], view: true, createTopics: {config: {retention.ms: "-1"}}}
  - name: made
    kafka: {brokers: ["kafka:9092"], view: true, topic: "made.{resource}"}
`)})
	if err != nil {
		t.Fatal(err)
	}
	for i, settings := range []int{2, 1} {
		k := c.Sinks[i].Kafka
		if !k.Tombstones || k.CreateTopics.Config["cleanup.policy"] != "compact" ||
			len(k.CreateTopics.Config) != settings || c.Informers[0].Sinks[i].Delivery != "latest" {
			t.Errorf("got %+v with %+v, %+v", k, k.CreateTopics, c.Informers[0].Sinks[i])
		}
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
