package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	store "github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// auditBroker has a stream that something else fills.
type auditBroker struct {
	stream  audit.Stream
	section sinks.Section // with the credentials
	add     func(data []byte)
	restart func() // nil for none
}

const auditUser, auditPassword = "exporter", "a password of sixteen"

func startAuditNATS(t *testing.T) *auditBroker {
	t.Helper()
	o := server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Username: auditUser, Password: auditPassword,
	}
	var s *server.Server
	start := func() {
		var err error
		options := o // the server changes them
		s, err = server.NewServer(&options)
		testkit.OK(t, err)
		s.Start()
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server is not ready")
		}
	}
	start()
	o.Port = s.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on TCP
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	conn, err := natsgo.Connect(s.ClientURL(), natsgo.UserInfo(auditUser, auditPassword), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	testkit.OK(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	testkit.OK(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"audit.>", "other"}})
	testkit.OK(t, err)
	return &auditBroker{
		stream:  audit.Stream{From: fmt.Sprintf("nats://127.0.0.1:%d/AUDIT", o.Port), Subject: "audit.>", Sink: "events"},
		section: new(testkit.WithDefaults(nats.Config{Username: auditUser, Password: auditPassword})),
		add: func(data []byte) {
			t.Helper()
			for _, subject := range []string{"other", fmt.Sprintf("audit.apiserver-%d", rand.IntN(3))} {
				testkit.Eventually(t, "it is stored", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := js.Publish(ctx, subject, data)
					return err == nil
				})
			}
		},
		restart: func() { s.Shutdown(); s.WaitForShutdown(); start() },
	}
}

func startAuditKafka(t *testing.T) *auditBroker {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "k8s-audit"), kfake.EnableSASL(), kfake.Superuser("PLAIN", auditUser, auditPassword))
	testkit.OK(t, err)
	t.Cleanup(c.Close)
	address := c.ListenAddrs()[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.SASL(plain.Auth{User: auditUser, Pass: auditPassword}.AsMechanism()), kgo.DefaultProduceTopic("k8s-audit"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	testkit.OK(t, err)
	t.Cleanup(client.Close)
	return &auditBroker{
		stream: audit.Stream{From: "kafka://" + address + "/k8s-audit", Sink: "events"},
		section: new(testkit.WithDefaults(kafka.Config{
			SASL: &kafka.SASL{Mechanism: "PLAIN", Username: auditUser, Password: settings.Secret(auditPassword)},
		})),
		add: func(data []byte) {
			t.Helper()
			testkit.OK(t, client.ProduceSync(t.Context(), &kgo.Record{Value: data}).FirstErr())
		},
	}
}

// Each event in a stream is stored once: those of several API servers, also twice in the stream, in
// envelopes, with others in between that can't be read, while the bridge and the broker restart.
func TestAuditStreams(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *auditBroker{"JetStream": startAuditNATS, "Kafka": startAuditKafka} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker, dir := start(t), t.TempDir()
			sink := func() *history.Sink {
				t.Helper()
				s, err := history.New(history.Options{
					Config: history.Config{Dir: dir, Audit: &audit.Config{Streams: []audit.Stream{broker.stream}}},
					Env: sinks.Env{Cluster: "prod", Registry: prometheus.NewPedanticRegistry(), Section: func(name string) sinks.Section {
						if name != broker.stream.Sink {
							return nil
						}
						return broker.section
					}},
				})
				testkit.OK(t, err)
				testkit.OK(t, s.Open(t.Context()))
				return s
			}
			const events, lives = 600, 5
			var filling sync.WaitGroup
			begun := make(chan struct{})
			filling.Go(func() {
				for n := 0; n < events; n++ {
					if n%(events/lives) == 0 {
						<-begun
					}
					text := auditEvent(n)
					switch n % 20 {
					case 1:
						broker.add(text)
					case 2:
						broker.add(text[:len(text)/2])
					case 3:
						list := fmt.Appendf(nil, `{"kind":"EventList","items":[%s,%s]}`, text, auditEvent(n+1))
						broker.add(list)
						n++
						continue
					case 5:
						broker.add(slices.Concat([]byte(`{"huge":"`), make([]byte, 900_000), []byte(`"}`)))
					}
					broker.add(text)
				}
			})
			s := sink()
			for life := range lives {
				begun <- struct{}{}
				if life == lives-1 {
					break
				}
				time.Sleep(time.Duration(500+rand.IntN(1500)) * time.Millisecond) // the recorder works by the clock
				testkit.OK(t, s.Close())
				if broker.restart != nil && life%2 == 0 {
					broker.restart()
				}
				s = sink()
			}
			filling.Wait()
			var counts []int
			count := func() bool {
				testkit.OK(t, s.Close())
				counts = storedRequests(t, dir, events)
				s = sink()
				return !slices.Contains(counts, 0)
			}
			testkit.Eventually(t, "each event is stored", func() bool { time.Sleep(2 * time.Second); return count() })
			for n, found := range counts {
				if found != 1 {
					t.Errorf("event %d is stored %d times", n, found)
				}
			}
			testkit.OK(t, s.Close())
		})
	}
}

// auditEvent is that of a request with the claim U<n>.
func auditEvent(n int) []byte {
	text, err := json.Marshal(map[string]any{
		"kind": "Event", "auditID": fmt.Sprint(n), "stage": "ResponseComplete", "verb": "patch", "user": map[string]any{"username": "ann"},
		"objectRef": map[string]any{"resource": "pods", "namespace": "shop", "name": "web"}, "responseStatus": map[string]any{"code": 200},
		"requestReceivedTimestamp": time.Now(), "stageTimestamp": time.Now(),
		"annotations": map[string]any{audit.PolicyName + "/uid": "u1", audit.PolicyName + "/a1": fmt.Sprint("U", n)},
	})
	if err != nil {
		panic(err)
	}
	return text
}

// storedRequests counts the requests with each of the claims U0 to Un-1.
func storedRequests(t *testing.T, dir string, n int) (counts []int) {
	t.Helper()
	db, err := store.Read(store.Options{Dir: dir})
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	recorded, err := audit.NewRecorded(db.Questions, "prod")
	testkit.OK(t, err)
	for i := range n {
		found, err := recorded.Claiming(fmt.Sprint("U", i))
		testkit.OK(t, err)
		counts = append(counts, len(found))
	}
	return counts
}

// A reload can't have a stream read elsewhere, or with the credentials of another sink: that is
// another place.
func TestAuditPlaces(t *testing.T) {
	t.Parallel()
	places := map[string]bool{}
	for _, s := range []audit.Stream{{From: "nats://a/S"}, {From: "nats://a/S", Sink: "b"}, {From: "nats://c/S", Sink: "b"}} {
		c := &history.Config{Audit: &audit.Config{Streams: []audit.Stream{s}}}
		places[fmt.Sprint(c.Places())] = true
	}
	if len(places) != 3 {
		t.Error(places)
	}
}
