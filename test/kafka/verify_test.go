package kafkatest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What the sink has stored is read back over TLS with SASL, whatever its compression, and bridge
// verify's checks find each planted fault in it. Another producer's transactions are read when they
// are committed.
func TestVerify(t *testing.T) {
	c := broker(t)
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			events, planted := testkit.PlantFaults(t, testkit.Events(t, 11, 300, 8), 11)
			topics := "verify-" + compression + ".{resource}"
			storeEvents(t, openSink(t, c, func(k *kafka.Options) {
				k.Topic, k.Compression = topics, compression
			}), events)
			transactions(t, c.Addresses(), "verify-"+compression+".pods")
			r := readAndCheck(t, source.Config{
				From: "kafka://" + c.Listener("SASL") + "/verify-" + compression + ".*",
				Kafka: kafka.Connection{
					TLS: client(t, ""), SASL: &kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: user, Password: password},
				},
			})
			for _, f := range r.Found {
				if planted[f.Object].Kind != string(f.Kind) {
					t.Errorf("%s in %s: %s; planted was %q", f.Kind, f.Object, f.What, planted[f.Object].What)
				}
			}
			if len(r.Found) != len(planted) || r.Events != len(events) {
				t.Errorf("%d faults in %d events, want %d in %d", len(r.Found), r.Events, len(planted), len(events))
			}
			if n := r.Other["record of verify-"+compression+".pods"]; n != 1 || len(r.Other) != 1 {
				t.Errorf("other messages %v, want the one that was committed", r.Other)
			}
		})
	}
}

// storeEvents publishes events in their order.
func storeEvents(t *testing.T, s *kafka.Sink, events []event.Event) {
	t.Helper()
	for i := range events {
		_, err := s.Lane(t.Context(), &events[i])
		must(t, err)
		m := &sinks.Message{Event: &events[i]}
		s.Publish(t.Context(), []*sinks.Message{m})
		must(t, m.Err)
	}
}

// transactions aborts one and commits one.
func transactions(t *testing.T, brokers []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	must(t, err)
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		must(t, client.BeginTransaction())
		must(t, client.ProduceSync(t.Context(), &kgo.Record{Value: []byte("not an event"), Key: []byte("k")}).FirstErr())
		must(t, client.EndTransaction(t.Context(), end))
	}
}

func readAndCheck(t *testing.T, cfg source.Config) *verify.Report {
	t.Helper()
	cfg.Patience = 20 * time.Second
	reader, err := source.Open(t.Context(), cfg)
	must(t, err)
	defer reader.Close()
	checker := verify.New(verify.Config{Whole: reader.Whole})
	var lanes []string
	for m, err := range reader.Messages(t.Context()) {
		must(t, err)
		if m.Other != "" {
			checker.Other(m.Other)
			continue
		}
		if !slices.Contains(lanes, m.Lane) {
			lanes = append(lanes, m.Lane)
		}
		checker.Feed(&m.Event, verify.Position{Lane: m.Lane, Offset: m.Offset})
	}
	if len(lanes) < 4 {
		t.Errorf("events in %v only", lanes)
	}
	return checker.Report()
}
