package publisher_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// swallow is a sink that acknowledges everything at once.
type swallow struct {
	order sinks.Order
	calls atomic.Int64
}

func (s *swallow) Open(context.Context) error { return nil }
func (s *swallow) Order() sinks.Order         { return s.order }
func (s *swallow) Limits() sinks.Limits       { return sinks.Limits{} }
func (s *swallow) Close() error               { return nil }
func (s *swallow) Lane(_ context.Context, e *event.Event) (string, error) {
	return e.PartitionKey, nil
}
func (s *swallow) Publish(context.Context, []*sinks.Message) { s.calls.Add(1) }
func (s *swallow) DeadLetter(context.Context, *event.Event, error, int) error {
	return sinks.ErrNoDeadLetter
}

// recycler hands settled items out again, as a listener does.
type recycler chan *publisher.Item

func (r recycler) Settle(items []*publisher.Item) {
	for _, it := range items {
		r <- it
	}
}

// BenchmarkAddPublishSettle is the cost of one event's way through the publisher, without a broker.
func BenchmarkAddPublishSettle(b *testing.B) {
	for name, order := range map[string]sinks.Order{"by object": sinks.ByObject, "by lane": sinks.ByLane} {
		for _, lanes := range []int{16, 1000} {
			b.Run(fmt.Sprintf("%s, %d lanes", name, lanes), func(b *testing.B) {
				sink := &swallow{order: order}
				p, err := publisher.New(publisher.Config{Sink: sink})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				free := make(recycler, 4096)
				for i := range cap(free) {
					it := &publisher.Item{Settler: free}
					it.Message.Event = &event.Event{PartitionKey: fmt.Sprint("pods/default/pod-", i%lanes), Data: make([]byte, 2000)}
					free <- it
				}
				var batch []*publisher.Item
				b.ReportAllocs()
				for b.Loop() {
					if batch = append(batch, <-free); len(batch) == 64 {
						if err := p.Add(ctx, batch); err != nil {
							b.Fatal(err)
						}
						batch = batch[:0]
					}
				}
				if err := p.Drain(ctx); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(p.Status().Published)/float64(sink.calls.Load()), "messages/call")
				cancel()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
