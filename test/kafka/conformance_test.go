package kafkatest_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

func TestTheSinkKeepsTheContract(t *testing.T) {
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			c := broker(t)
			sinktest.Run(t, sinktest.Harness{
				Start:    func(t *testing.T) *sinktest.Broker { return destination(t, c, encoding) },
				TooLarge: 60_000,
				Exempt: map[string]string{
					"stores a resent message once": "the broker knows batches and not messages; the sink does not ask for a message to be " +
						"sent again that may be stored, since it settles the batch itself",
					"stores a message resent after a restart once": "a new process is a new producer; what it must not send again it recalls",
				},
			})
		})
	}
}

var destinations atomic.Int64

// destination is a set of topics that nobody else has.
func destination(t *testing.T, c *kafkatest.Cluster, encoding string) *sinktest.Broker {
	prefix, n := fmt.Sprintf("case%d.", destinations.Add(1)), new(network)
	return &sinktest.Broker{
		NewSink: func(t *testing.T) sinks.Sink {
			return newSink(t, c, n.use, func(k *kafka.Options) {
				k.Cluster, k.Encoding, k.Compression = sinktest.Cluster, encoding, "none"
				k.Topic, k.DeadLetterTopic = prefix+"{cluster}.{resource}", prefix+"dead.{cluster}"
				k.CreateTopics.Config = map[string]string{"max.message.bytes": "40000"}
			})
		},
		Read:    func(t *testing.T, atLeast int) []sinktest.Received { return readPrefix(t, c, prefix, atLeast) },
		Break:   func() { n.cut(true) },
		Restore: func() { n.cut(false) },
		Limit: func(t *testing.T, bytes int) {
			t.Helper()
			topics, err := admin(t, c).ListTopics(t.Context())
			must(t, err)
			names := slices.DeleteFunc(topics.Names(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
			setLimit(t, c, cmp.Or(bytes, 40_000), names)
		},
	}
}

// setLimit sets the limit of topics, and waits until the broker keeps it: it has answered before. A
// topic that gets the limit after them shows that.
func setLimit(t *testing.T, c *kafkatest.Cluster, bytes int, topics []string) {
	t.Helper()
	const probe = "limit"
	_, _ = admin(t, c).CreateTopic(t.Context(), 1, 1, nil, probe) // it may be there
	limit := strconv.Itoa(bytes)
	for _, names := range [][]string{topics, {probe}} {
		_, err := admin(t, c).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, names...)
		must(t, err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addresses()...), kgo.DefaultProduceTopic(probe), kgo.ProducerBatchCompression(kgo.NoCompression()))
	must(t, err)
	defer client.Close()
	testkit.Eventually(t, "the broker keeps the limit "+limit, func() bool {
		err := client.ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, bytes)}).FirstErr()
		return errors.Is(err, kerr.MessageTooLarge)
	})
}

// readPrefix reads all topics of a destination.
func readPrefix(t *testing.T, c *kafkatest.Cluster, prefix string, atLeast int) (all []sinktest.Received) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		topics, err := admin(t, c).ListTopics(t.Context())
		must(t, err)
		names := slices.DeleteFunc(topics.Names(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
		all = all[:0]
		if len(names) > 0 {
			for _, r := range readAll(t, c, names...) {
				all = append(all, parse(t, r))
			}
		}
		if len(all) >= atLeast {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are stored, want at least %d", len(all), atLeast)
		}
	}
}

func parse(t *testing.T, r *kgo.Record) sinktest.Received {
	t.Helper()
	got, err := sinktest.ParseStructured(r.Value)
	if !strings.HasPrefix(header(r, "content-type"), "application/cloudevents+json") {
		got, err = sinktest.ParseBinary(attributes(r), r.Value)
	}
	must(t, err)
	got.Destination, got.Partition, got.Key = r.Topic, int(r.Partition), string(r.Key)
	return got
}

// attributes are the event's among a record's headers.
func attributes(r *kgo.Record) map[string]string {
	found := map[string]string{}
	for _, h := range r.Headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			found[name] = string(h.Value)
		} else if h.Key == "content-type" {
			found["datacontenttype"] = string(h.Value)
		}
	}
	return found
}
