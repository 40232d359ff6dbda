package kafkatest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// Topics are created as configured, and forget what is deleted.
func TestConfiguredTopics(t *testing.T) {
	c := broker(t)
	topic := fmt.Sprintf("made%d", destinations.Add(1))
	s := openSink(t, c, func(k *kafka.Options) {
		k.Topic, k.Tombstones = topic+".{resource}", true
		k.CreateTopics = &kafka.CreateTopics{Partitions: 5, ReplicationFactor: 1, Config: map[string]string{"cleanup.policy": "compact"}}
	})
	last := sinktest.NewEvent("web", 2, 300)
	last.Op, last.Type = event.Deleted, "dev.kubebridge.resource.deleted"
	batch := []*sinks.Message{{Event: sinktest.NewEvent("web", 1, 300)}, {Event: last}}
	s.Publish(t.Context(), batch)
	must(t, batch[0].Err)
	must(t, batch[1].Err)

	topic += ".deployments"
	topics, err := admin(t, c).ListTopics(t.Context(), topic)
	must(t, err)
	configs, err := admin(t, c).DescribeTopicConfigs(t.Context(), topic)
	must(t, err)
	if n := len(topics[topic].Partitions); n != 5 {
		t.Errorf("%d partitions", n)
	}
	if !slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == "cleanup.policy" && c.MaybeValue() == "compact" }) {
		t.Error("the topic is not compacted")
	}
	records := readAll(t, c, topic)
	if len(records) != 3 || records[2].Value != nil || string(records[2].Key) != last.PartitionKey {
		t.Errorf("%d records, the last with value %q", len(records), records[len(records)-1].Value)
	}
}

// TestGrowingTopicOrder gives a topic more partitions while the sink writes: every
// object stays where it was.
func TestGrowingTopicOrder(t *testing.T) {
	c := broker(t)
	topic := fmt.Sprintf("grows%d", destinations.Add(1))
	s := openSink(t, c, func(k *kafka.Options) { k.Topic = topic })
	for version := 1; version <= 40; version++ {
		for i := range 20 {
			publishAs(t, s, sinktest.NewEvent(fmt.Sprint("web-", i), version, 100))
		}
		if version == 20 {
			_, err := admin(t, c).UpdatePartitions(t.Context(), 7, topic)
			must(t, err)
		}
	}
	partitions, versions := map[string]int32{}, map[string][]string{}
	for _, r := range readAll(t, c, topic) {
		key := string(r.Key)
		if p, ok := partitions[key]; ok && p != r.Partition {
			t.Fatalf("%s lies in partitions %d and %d", key, p, r.Partition)
		}
		partitions[key] = r.Partition
		versions[key] = append(versions[key], header(r, "ce_resourceversion"))
	}
	for key, got := range versions {
		if len(got) != 40 || got[0] != "1" || got[39] != "40" {
			t.Errorf("%s has %s", key, strings.Join(got, " "))
		}
	}
}
