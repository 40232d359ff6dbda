package cli

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/testkit"
)

// natsBroker is a JetStream server that can be taken away, with a reader that notes when each
// change arrived.
type natsBroker struct {
	t      *testing.T
	opts   server.Options
	server *server.Server
	client *natsgo.Conn
	follow jetstream.ConsumeContext

	mu      sync.Mutex
	arrived map[int64]int64 // guarded by mu: unix nanoseconds by version
}

func newNATSBroker(t *testing.T) *natsBroker {
	t.Helper()
	b := &natsBroker{t: t, arrived: map[int64]int64{}, opts: server.Options{
		Host: "127.0.0.1", Port: testkit.Port(t), JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	}}
	b.start()
	var err error
	if b.client, err = natsgo.Connect(b.url(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err = b.jetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.dev.>"}, Duplicates: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	b.read()
	t.Cleanup(func() {
		b.client.Close()
		b.stop()
	})
	return b
}

func (b *natsBroker) start() {
	b.t.Helper()
	opts := b.opts
	s, err := server.NewServer(&opts)
	if err != nil {
		b.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		b.t.Fatal("nats-server is not ready after 20s")
	}
	b.server, b.opts.Port = s, opts.Port
}

func (b *natsBroker) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// drain waits until the server has stored all that a process has sent which is dead, so that the
// next one finds it there: the stream does not remember ids for that long. The server has read all
// when it forgets the connection. It answers in the order in which it stores, so its answer to what
// it refuses comes behind that.
func (b *natsBroker) drain() {
	b.t.Helper()
	if !b.server.Running() {
		return
	}
	testkit.Eventually(b.t, "only the reader is connected", func() bool { return b.server.NumClients() == 1 })
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	_, err := b.jetStream().Publish(ctx, "k8s.dev.drain", nil, jetstream.WithExpectLastSequence(1))
	var refused *jetstream.APIError
	if !errors.As(err, &refused) || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		b.t.Fatalf("the server has not refused a message that expects to be the second: %v", err)
	}
}

func (b *natsBroker) url() string { return b.server.ClientURL() }

func (b *natsBroker) jetStream() jetstream.JetStream {
	b.t.Helper()
	js, err := jetstream.New(b.client)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// read notes the arrival of every change, also after the server was unavailable.
func (b *natsBroker) read() {
	b.t.Helper()
	consumer, err := b.jetStream().OrderedConsumer(b.t.Context(), "K8S", jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		b.t.Fatal(err)
	}
	b.follow, err = consumer.Consume(func(m jetstream.Msg) {
		now := time.Now().UnixNano()
		values := m.Headers()["ce-resourceversion"]
		if len(m.Headers()["ce-name"]) == 0 || len(values) == 0 {
			return
		}
		version, _ := strconv.ParseInt(values[0], 10, 64)
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, ok := b.arrived[version-firstVersion]; !ok {
			b.arrived[version-firstVersion] = now
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// distinct is how many changes have arrived.
func (b *natsBroker) distinct() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.arrived))
}

func (b *natsBroker) name(o *outage) string {
	if b == o.away {
		return "the sink that was unavailable"
	}
	return "the other sink"
}
