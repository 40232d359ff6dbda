package nats_test

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// BenchmarkPublish measures full calls of one caller against a server in the same process, server
// included. ns/op and allocs/op are per message.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{2 << 10, 6 << 10} {
		for _, mode := range []string{
			"jetstream", "jetstream-memory", "jetstream-structured",
			"core",
		} {
			b.Run(fmt.Sprintf("%s/%dKB", mode, size>>10), func(b *testing.B) {
				ts := newTestServer(b)
				sink := ts.openSink(func(c *nats.Options) {
					c.Log = nil
					switch mode {
					case "core":
						c.Mode = nats.Core
					case "jetstream-memory":
						c.Stream.Storage = "memory"
					case "jetstream-structured":
						c.Encoding = sinks.Structured
					}
				})
				benchmarkCalls(b, sink, size)
			})
		}
	}
}

func benchmarkCalls(b *testing.B, sink sinks.Sink, size int) {
	batch := make([]*sinks.Message, min(512, (900<<10)/size))
	for i := range batch {
		batch[i] = &sinks.Message{Event: sinktest.NewEvent(fmt.Sprintf("web-%d", i), 1, size)}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	// one iteration is one message: a call every len(batch) iterations
	for version, sent := 1, 0; b.Loop(); sent++ {
		if sent%len(batch) > 0 {
			continue
		}
		version++
		for i, m := range batch {
			m.Event.ID = fmt.Sprintf("uid-web-%d/%d", i, version)
		}
		sink.Publish(b.Context(), batch)
		for _, m := range batch {
			if m.Err != nil {
				b.Fatal(m.Err)
			}
		}
	}
}

// BenchmarkEncode is the sink's own share: everything up to the socket, which is thrown away.
func BenchmarkEncode(b *testing.B) {
	for _, encoding := range sinks.Encodings {
		b.Run(encoding, func(b *testing.B) {
			encode := nats.NewEncodeLoop(encoding)
			e := sinktest.NewEvent("web", 1, 2<<10)
			b.ReportAllocs()
			for b.Loop() {
				encode(e)
			}
		})
	}
}
