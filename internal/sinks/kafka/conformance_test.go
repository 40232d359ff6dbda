package kafka_test

import (
	"cmp"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

func TestContract(t *testing.T) {
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				Start:    func(t *testing.T) *sinktest.Broker { return startBroker(t, encoding) },
				TooLarge: 60_000,
				Exempt: map[string]string{
					"stores a resent message once": "the broker knows batches and not messages; " +
						"the sink does not ask for a message to be " +
						"sent again that may be stored, since it settles the batch itself",
					"stores a message resent after a restart once": "a new process is a new " +
						"producer; see the package's documentation",
				},
			})
		})
	}
}

func startBroker(t *testing.T, encoding string) *sinktest.Broker {
	c := newCluster(t, kfake.NumBrokers(2),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "40000"}))
	n := new(network)
	return &sinktest.Broker{
		NewSink: func(t *testing.T) sinks.Sink {
			s, err := kafka.New(withDefaults(kafka.Options{
				Env: sinks.Env{
					Cluster: sinktest.Cluster, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
				},
				Common: sinks.Common{Encoding: encoding},
				Connection: kafka.Connection{
					Brokers: c.ListenAddrs(), Timeout: 2 * time.Second, Dial: n.dial,
				},
				Config: kafka.Config{
					Compression: "none", DeadLetterTopic: "dead.{cluster}",
					// kfake gives the broker's own setting for a topic only where the topic has it
					// too, which Kafka itself does not need.
					CreateTopics: &kafka.CreateTopics{
						Partitions: 3, ReplicationFactor: 1,
						Config: map[string]string{"max.message.bytes": "40000"},
					},
				},
			}))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Read:    func(t *testing.T, n int) []sinktest.Received { return readEverything(t, c, n) },
		Break:   func() { n.setDown(true) },
		Restore: func() { n.setDown(false) },
		Limit: func(t *testing.T, bytes int) {
			setTopics(t, c, "max.message.bytes", strconv.Itoa(cmp.Or(bytes, 40_000)))
		},
	}
}

// setTopics sets a setting of all topics.
func setTopics(t *testing.T, c *kfake.Cluster, name, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, topic := range topicsOf(t, c) {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Value: &value}}
		request.Resources = append(request.Resources, r)
	}
	answer, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Resources {
		if r.ErrorCode != 0 {
			t.Fatal(r.ResourceName, r.ErrorCode)
		}
	}
}

// readEverything reads all topics of the cluster.
func readEverything(t *testing.T, c *kfake.Cluster, atLeast int) (all []sinktest.Received) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all = all[:0]
		for _, topic := range topicsOf(t, c) {
			for _, r := range readAll(t, c, topic) {
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
	if contentType, _ := header(r, "content-type"); !strings.HasPrefix(contentType,
		"application/cloudevents+json") {
		got, err = sinktest.ParseBinary(attributes(r), r.Value)
	}
	if err != nil {
		t.Fatal(err)
	}
	got.Destination, got.Partition, got.Key = r.Topic, int(r.Partition), string(r.Key)
	return got
}

// attributes are the event's attributes among a record's headers.
func attributes(r *kgo.Record) map[string]string {
	found := make(map[string]string)
	for _, h := range r.Headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			found[name] = string(h.Value)
		} else if h.Key == "content-type" {
			found["datacontenttype"] = string(h.Value)
		}
	}
	return found
}
