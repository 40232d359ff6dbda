package source_test

import (
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

// seen is what a reader has given.
type seen struct {
	events []event.Event
	lanes  []string
	other  []string
}

// readAll reads to the end.
func readAll(t *testing.T, r source.Reader) (s seen, err error) {
	t.Helper()
	for m, err := range r.Messages(t.Context()) {
		if err != nil {
			return s, err
		}
		if m.Other != "" {
			s.other = append(s.other, m.Other)
			continue
		}
		e := m.Event
		e.Data = slices.Clone(e.Data)
		s.events, s.lanes = append(s.events, e), append(s.lanes, m.Lane)
	}
	return s, nil
}

func open(t *testing.T, cfg source.Config) source.Reader {
	t.Helper()
	r, err := source.Open(t.Context(), cfg)
	testkit.OK(t, err)
	t.Cleanup(r.Close)
	return r
}

// attributes are those of an event, with its data.
func attributes(e *event.Event) map[string]string {
	all := map[string]string{"data": string(e.Data)}
	e.Each(func(name, value string) { all[name] = value })
	return all
}

// requireSame compares what was read with what was sent, each object's events in their order.
func requireSame(t *testing.T, got, want []event.Event) {
	t.Helper()
	byKey := func(events []event.Event) map[string][]map[string]string {
		all := map[string][]map[string]string{}
		for i := range events {
			key := events[i].PartitionKey
			all[key] = append(all[key], attributes(&events[i]))
		}
		return all
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	gotBy := byKey(got)
	for key, list := range byKey(want) {
		for i := range list {
			if i >= len(gotBy[key]) || !maps.Equal(gotBy[key][i], list[i]) {
				t.Fatalf("event %d of %s:\n%v\nwant\n%v", i, key, gotBy[key], list[i])
			}
		}
	}
}

// publish sends events one by one, so that they are stored in their order.
func publish(t *testing.T, s sinks.Sink, events []event.Event) {
	t.Helper()
	testkit.OK(t, s.Open(t.Context()))
	for i := range events {
		_, err := s.Lane(t.Context(), &events[i])
		testkit.OK(t, err)
		m := &sinks.Message{Event: &events[i]}
		if s.Publish(t.Context(), []*sinks.Message{m}); m.Err != nil {
			t.Fatal(m.Err)
		}
	}
	testkit.OK(t, s.Close())
}

func natsServer(t *testing.T, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	for _, f := range change {
		f(o)
	}
	s, err := server.NewServer(o)
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s
}

func natsSink(t *testing.T, url string, change ...func(*nats.Options)) sinks.Sink {
	t.Helper()
	c := nats.Options{
		Config: testkit.WithDefaults(nats.Config{
			Servers: []settings.URL{settings.URL(url)},
			Stream:  nats.Stream{Storage: "memory", Compression: "none"},
		}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary},
		Env:    sinks.Env{Cluster: "prod"},
	}
	for _, f := range change {
		f(&c)
	}
	s, err := nats.New(c)
	testkit.OK(t, err)
	return s
}

func kafkaSink(t *testing.T, brokers []string, change ...func(*kafka.Options)) sinks.Sink {
	t.Helper()
	c := kafka.Options{
		Config: testkit.WithDefaults(kafka.Config{
			CreateTopics: &kafka.CreateTopics{Partitions: 3, ReplicationFactor: 1},
		}),
		Common:     sinks.Common{Encoding: sinks.Binary},
		Env:        sinks.Env{Cluster: "prod"},
		Connection: kafka.Connection{Brokers: brokers},
	}
	for _, f := range change {
		f(&c)
	}
	s, err := kafka.New(c)
	testkit.OK(t, err)
	return s
}

func kafkaCluster(t *testing.T) (address string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	testkit.OK(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func document(events []event.Event) []byte {
	var out []byte
	for i := range events {
		out = append(event.AppendStructured(out, &events[i]), '\n')
	}
	return out
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testkit.OK(t, os.WriteFile(path, data, 0o600))
	return path
}

// stores put events where they are read from.
var stores = map[string]func(t *testing.T, events []event.Event) source.Config{
	"JetStream": func(t *testing.T, events []event.Event) source.Config {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), events)
		return source.Config{From: s.ClientURL() + "/K8S"}
	},
	"JetStream, structured": func(t *testing.T, events []event.Event) source.Config {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL(), func(c *nats.Options) { c.Encoding = sinks.Structured }), events)
		return source.Config{From: s.ClientURL() + "/K8S"}
	},
	"JetStream, flat": func(t *testing.T, events []event.Event) source.Config {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL(), func(c *nats.Options) { c.Encoding = sinks.Flat }), events)
		return source.Config{From: s.ClientURL() + "/K8S"}
	},
	"streams by a pattern": func(t *testing.T, events []event.Event) source.Config {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL(), func(c *nats.Options) { c.Stream.Name = "K8S-{resource}" }), events)
		return source.Config{From: s.ClientURL() + "/K8S-*"}
	},
	"Kafka": func(t *testing.T, events []event.Event) source.Config {
		address := kafkaCluster(t)
		publish(t, kafkaSink(t, []string{address}), events)
		return source.Config{From: "kafka://" + address + "/k8s.prod.*"}
	},
	"Kafka, structured, zstd, with tombstones": func(t *testing.T, events []event.Event) source.Config {
		address := kafkaCluster(t)
		publish(t, kafkaSink(t, []string{address}, func(c *kafka.Options) {
			c.Encoding, c.Compression, c.Tombstones = sinks.Structured, "zstd", true
		}), events)
		return source.Config{From: "kafka://" + address + "/k8s.prod.pods,k8s.prod.deployments"}
	},
	"Kafka, flat": func(t *testing.T, events []event.Event) source.Config {
		address := kafkaCluster(t)
		publish(t, kafkaSink(t, []string{address}, func(c *kafka.Options) { c.Encoding = sinks.Flat }), events)
		return source.Config{From: "kafka://" + address + "/k8s.prod.*"}
	},
	"a file, flat": func(t *testing.T, events []event.Event) source.Config {
		var out []byte
		for i := range events {
			out = append(event.AppendFlat(out, &events[i]), '\n')
		}
		return source.Config{From: writeFile(t, "events.json", out)}
	},
	"a file": func(t *testing.T, events []event.Event) source.Config {
		return source.Config{From: writeFile(t, "events.json", document(events))}
	},
	"a file, compressed": func(t *testing.T, events []event.Event) source.Config {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write(document(events))
		testkit.OK(t, err)
		testkit.OK(t, w.Close())
		return source.Config{From: writeFile(t, "events.json.gz", out.Bytes())}
	},
	"standard input, a batch": func(_ *testing.T, events []event.Event) source.Config {
		batch := bytes.ReplaceAll(bytes.TrimSpace(document(events)), []byte("\n"), []byte(",\n"))
		return source.Config{From: "-", Stdin: strings.NewReader("[" + string(batch) + "]")}
	},
}
