package nats_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// BenchmarkBesideNatsGo sends the same events to one stream with the sink, as the publisher calls
// it (four calls at once, each object at most once in flight), and with nats.go's PublishMsgAsync,
// which keeps no order when it has to resend. The server is in the same process: cpu-us/msg and
// allocs/op are of both.
func BenchmarkBesideNatsGo(b *testing.B) {
	for _, size := range []int{2 << 10, 6 << 10} {
		b.Run(fmt.Sprintf("sink/%dKB", size>>10), func(b *testing.B) { benchmarkSink(b, size) })
		b.Run(fmt.Sprintf("PublishMsgAsync/%dKB", size>>10),
			func(b *testing.B) { benchmarkAsync(b, size) })
	}
}

// measured reports the CPU time of what is done for b.N messages.
func measured(b *testing.B, size int, do func()) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	do()
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/msg")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func benchmarkSink(b *testing.B, size int) {
	sink := newTestServer(b).openSink(func(c *nats.Options) { c.Log = nil })
	const callers = 4
	perCall := min(512, (900<<10)/size)
	batches := make([][]*sinks.Message, callers)
	for caller := range batches {
		for i := range perCall {
			batches[caller] = append(batches[caller],
				&sinks.Message{Event: sinktest.NewEvent(fmt.Sprintf("web-%d-%d", caller, i), 1,
					size)})
		}
	}
	measured(b, size, func() {
		var calls sync.WaitGroup
		for caller, batch := range batches {
			calls.Go(func() {
				for sent, version := 0, 0; sent < b.N/callers+1; sent += len(batch) {
					version++
					for i, m := range batch {
						m.Event.ID = fmt.Sprintf("uid-%d-%d/%d", caller, i, version)
					}
					sink.Publish(b.Context(), batch)
					for _, m := range batch {
						if m.Err != nil {
							b.Error(m.Err)
							return
						}
					}
				}
			})
		}
		calls.Wait()
	})
}

func benchmarkAsync(b *testing.B, size int) {
	ts := newTestServer(b)
	ts.openSink(func(c *nats.Options) { c.Log = nil }) // makes the stream
	js, err := jetstream.New(ts.client(), jetstream.WithPublishAsyncMaxPending(2048))
	if err != nil {
		b.Fatal(err)
	}
	e := sinktest.NewEvent("web", 1, size)
	measured(b, size, func() {
		for i := range b.N {
			e.ID = fmt.Sprintf("uid/%d", i)
			if _, err := js.PublishMsgAsync(plainMessage(e),
				jetstream.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
	})
}

// plainMessage is the event as a program would make it by hand.
func plainMessage(e *event.Event) *natsclient.Msg {
	m := natsclient.NewMsg("k8s.test.apps.v1.deployments.shop." + e.Name + "." + string(e.Op))
	e.Each(func(name, value string) { m.Header["ce-"+name] = []string{value} })
	m.Header["Nats-Msg-Id"] = []string{e.MessageID()}
	m.Data = e.Data
	return m
}
