package kafkatest_test

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

// one is the broker that most tests share; it starts with the first that needs it.
var one = sync.OnceValues(startOne)

const (
	user     = "bridge"
	password = "a secret of sorts"
	// certifiedListener wants a certificate; a test changes what it has and trusts.
	certifiedListener = "CERTIFIED"
)

var certs *authority // of the shared broker

// startOne starts one broker with every listener that the sink can talk to.
func startOne() (*kafkatest.Cluster, error) {
	var err error
	if certs, err = newAuthority(filepath.Join(dir, "certs")); err != nil {
		return nil, err
	}
	const module = "org.apache.kafka.common.security."
	return kafkatest.Start(kafkatest.Options{
		Dir: filepath.Join(dir, "one"), Lib: lib,
		Listeners: map[string]string{"SASL": "SASL_SSL", "MTLS": "SSL", certifiedListener: "SSL"},
		SCRAM: []string{
			"SCRAM-SHA-256=[name=" + user + ",password=" + password + "]",
			"SCRAM-SHA-512=[name=" + user + ",password=" + password + "]",
		},
		Properties: map[string]string{
			"ssl.keystore.type":                  "PEM",
			"ssl.keystore.location":              certs.file("broker.pem"),
			"ssl.truststore.type":                "PEM",
			"ssl.truststore.location":            certs.file("ca.pem"),
			"listener.name.mtls.ssl.client.auth": "required",

			"listener.name.certified.ssl.client.auth":         "required",
			"listener.name.certified.ssl.keystore.type":       "PEM",
			"listener.name.certified.ssl.keystore.location":   certs.file("broker.pem"),
			"listener.name.certified.ssl.truststore.type":     "PEM",
			"listener.name.certified.ssl.truststore.location": certs.file("ca.pem"),

			"listener.name.sasl.sasl.enabled.mechanisms":               "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			"listener.name.sasl.plain.sasl.jaas.config":                module + `plain.PlainLoginModule required user_` + user + `="` + password + `";`,
			"listener.name.sasl.scram-sha-256.sasl.jaas.config":        module + `scram.ScramLoginModule required;`,
			"listener.name.sasl.scram-sha-512.sasl.jaas.config":        module + `scram.ScramLoginModule required;`,
			"listener.name.sasl.oauthbearer.sasl.jaas.config":          module + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
			"listener.name.sasl.oauthbearer.connections.max.reauth.ms": "0",
		},
	})
}

var (
	dir string // of everything that the tests write
	lib = os.Getenv("KAFKA_LIB")
)

func TestMain(m *testing.M) {
	if config := os.Getenv(natsConfigVariable); config != "" {
		serveNATS(config)
		return
	}
	var err error
	if dir, err = os.MkdirTemp("", "kafkatest"); err != nil {
		panic(err)
	}
	code := m.Run()
	if lib != "" {
		if c, err := one(); err == nil {
			c.Close()
		}
	}
	_ = os.RemoveAll(dir) // what is left of it is in the temporary directory
	os.Exit(code)
}

// needJars skips a test where Kafka is not at hand.
func needJars(t testing.TB) {
	t.Helper()
	if lib == "" {
		t.Skip("KAFKA_LIB does not name the directory of Kafka's jars: run make test-kafka")
	}
}

// broker is the shared one.
func broker(t testing.TB) *kafkatest.Cluster {
	t.Helper()
	needJars(t)
	c, err := one()
	must(t, err)
	ready.Do(func() { waitReady(t, c) })
	return c
}

var ready sync.Once

// waitReady waits until the broker gives out producer ids, which it does some moments after it
// serves.
func waitReady(t testing.TB, c *kafkatest.Cluster) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		s := newSink(t, c)
		err := s.Open(t.Context())
		if _ = s.Close(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newSink makes a sink for a cluster, not yet open. It makes its topics. Who opens it closes it.
func newSink(t testing.TB, c *kafkatest.Cluster, change ...func(*kafka.Options)) *kafka.Sink {
	t.Helper()
	config := kafka.Options{
		Config: testkit.WithDefaults(kafka.Config{
			CreateTopics: &kafka.CreateTopics{Partitions: 3, ReplicationFactor: len(c.Nodes)},
		}),
		Common:     sinks.Common{Encoding: sinks.Binary},
		Env:        sinks.Env{Log: slog.New(slog.NewTextHandler(t.Output(), nil))},
		Connection: kafka.Connection{Brokers: c.Addresses()},
	}
	for _, f := range change {
		f(&config)
	}
	s, err := kafka.New(config)
	must(t, err)
	return s
}

func openSink(t testing.TB, c *kafkatest.Cluster, change ...func(*kafka.Options)) *kafka.Sink {
	t.Helper()
	s := newSink(t, c, change...)
	must(t, s.Open(t.Context()))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// admin is franz-go's administration client.
func admin(t testing.TB, c *kafkatest.Cluster) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addresses()...))
	must(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// readAll reads topics from their beginning to their end with franz-go, in order per partition.
func readAll(t testing.TB, c *kafkatest.Cluster, topics ...string) []*kgo.Record {
	t.Helper()
	return slices.Collect(eachRecord(t, c, topics...))
}

// eachRecord is readAll for more than memory holds.
func eachRecord(t testing.TB, c *kafkatest.Cluster, topics ...string) iter.Seq[*kgo.Record] {
	t.Helper()
	ends, err := admin(t, c).ListEndOffsets(t.Context(), topics...)
	must(t, err)
	must(t, ends.Error())
	left := map[string]map[int32]int64{}
	starts := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset == 0 {
			return
		}
		if left[o.Topic] == nil {
			left[o.Topic], starts[o.Topic] = map[int32]int64{}, map[int32]kgo.Offset{}
		}
		left[o.Topic][o.Partition], starts[o.Topic][o.Partition] = o.Offset, kgo.NewOffset().AtStart()
	})
	return func(yield func(*kgo.Record) bool) {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.Addresses()...), kgo.ConsumePartitions(starts), kgo.FetchMaxWait(100*time.Millisecond))
		must(t, err)
		defer client.Close()
		for n, newest := 0, time.Now(); len(left) > 0; {
			limited, cancel := context.WithTimeout(t.Context(), time.Second)
			records := client.PollFetches(limited).Records()
			cancel()
			if len(records) > 0 {
				newest = time.Now()
			} else if time.Since(newest) > time.Minute {
				t.Fatalf("read: %d records, and still to come: %v", n, left)
			}
			for _, r := range records {
				n++
				if !yield(r) {
					return
				}
				if r.Offset+1 >= left[r.Topic][r.Partition] {
					delete(left[r.Topic], r.Partition)
				}
				if len(left[r.Topic]) == 0 {
					delete(left, r.Topic)
				}
			}
		}
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
