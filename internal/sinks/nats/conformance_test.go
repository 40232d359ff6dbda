package nats_test

import (
	"cmp"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// max_payload of a server with defaults; headers make it too much
const tooLarge = 1 << 20

func TestContractJetStream(t *testing.T) {
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				Start: func(t *testing.T) *sinktest.Broker {
					return jetStreamBroker(t,
						encoding)
				},
				TooLarge: tooLarge,
			})
		})
	}
}

func jetStreamBroker(t *testing.T, encoding string) *sinktest.Broker {
	ts := newTestServer(t)
	return &sinktest.Broker{
		NewSink: func(*testing.T) sinks.Sink {
			return ts.newSink(func(c *nats.Options) { c.Encoding = encoding })
		},
		Read: func(t *testing.T, n int) []sinktest.Received {
			var all []sinktest.Received
			for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
				all = append(all, parse(t, m.Subject, m.Header, m.Data))
			}
			if len(all) < n {
				// an ack promises that they are there now
				t.Fatalf("%d messages are stored, want %d", len(all), n)
			}
			return all
		},
		Break:   ts.stop,
		Restore: ts.start,
		Limit: func(t *testing.T, bytes int) {
			ts.updateStream("K8S", func(c *jetstream.StreamConfig) { c.MaxMsgSize = int32(cmp.Or(bytes, -1)) })
		},
	}
}

func TestContractCore(t *testing.T) {
	const atMostOnce = "core NATS stores nothing: messages are delivered at most once"
	sinktest.Run(t, sinktest.Harness{
		Start:    coreBroker,
		TooLarge: tooLarge,
		Exempt: map[string]string{
			"stores a resent message once":                                      atMostOnce,
			"what a cancelled call has left open is stored once in other calls": atMostOnce,
			"stores a message resent after a restart once":                      atMostOnce,
			"recalls what was stored behind a position":                         atMostOnce,
			"answers while the broker is unavailable and stores in order once it is back": atMostOnce +
				"; core_test.go tests the answers",
		},
	})
}

// coreBroker collects what a subscriber hears.
func coreBroker(t *testing.T) *sinktest.Broker {
	ts := newTestServer(t)
	var mu sync.Mutex
	var heard []sinktest.Received
	listener := ts.client()
	listen := func(m *natsclient.Msg) {
		r := parse(t, m.Subject, m.Header, m.Data)
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r)
	}
	if _, err := listener.Subscribe("k8s.>", listen); err != nil {
		t.Fatal(err)
	}
	_ = listener.Flush()
	return &sinktest.Broker{
		NewSink: func(*testing.T) sinks.Sink {
			return ts.newSink(func(c *nats.Options) { c.Mode = nats.Core })
		},
		Read: func(t *testing.T, n int) []sinktest.Received {
			for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				mu.Lock()
				all := append([]sinktest.Received(nil), heard...)
				mu.Unlock()
				if len(all) >= n {
					return all
				}
				if time.Since(began) > 10*time.Second {
					t.Fatalf("%d messages were heard, want %d", len(all), n)
				}
			}
		},
		Break: ts.stop,
		Limit: func(_ *testing.T, bytes int) {
			ts.reload(func(o *server.Options) { o.MaxPayload = int32(cmp.Or(bytes, tooLarge)) })
		},
		Restore: func() {
			ts.start()
			// What is published before the listener is connected again is lost to it. IsConnected
			// is also true until the client notices that the old connection ended.
			for !listener.IsConnected() || listener.FlushTimeout(time.Second) != nil {
				time.Sleep(5 * time.Millisecond)
			}
		},
	}
}
