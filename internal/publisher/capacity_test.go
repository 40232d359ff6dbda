package publisher_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Add blocks at the bounds.
func TestAddAtBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newSink(t, sinks.ByObject)
		sink.Bounds = sinks.Limits{Messages: 2, Concurrency: 1}
		sink.OnPublish = func(context.Context, []*sinks.Message) { time.Sleep(time.Second) }
		p := start(t, sink, publisher.Config{MaxItems: 10, MaxBytes: 8000})
		recorders := map[string]*recorder{"small": newRecorder(t), "large": newRecorder(t)}
		var adders sync.WaitGroup
		for name, r := range recorders {
			items := r.items(numbered(name, 100)...)
			for i, it := range items {
				it.Message.Event.Name += it.Message.Event.ID // every item a lane
				if name == "large" {
					it.Message.Event.Data = make([]byte, 3000+i*100) // some above the bound
				}
			}
			adders.Go(func() { p.add(items) })
		}
		done := make(chan struct{})
		go func() { adders.Wait(); p.drain(); close(done) }()
		mostBytes := 0
		for drained := false; !drained; {
			select {
			case <-done:
				drained = true
			case <-time.After(100 * time.Millisecond):
			}
			s := p.Status()
			mostBytes = max(mostBytes, s.QueuedBytes)
			if s.QueuedItems > 10 || s.QueuedBytes > 8000 && s.QueuedItems > 1 {
				t.Fatalf("bounds exceeded: %+v", s)
			}
		}
		if mostBytes < 8000 {
			t.Errorf("at most %d bytes were queued: the item larger than the bound never was", mostBytes)
		}
		for name, r := range recorders {
			if r.count() != 100 {
				t.Errorf("%s: %d settled", name, r.count())
			}
		}
	})
}

// Callers of Add are served in their order.
func TestAddOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnPublish = func(ctx context.Context, _ []*sinks.Message) { <-ctx.Done() }
		p := start(t, sink, publisher.Config{MaxBytes: 10_000, PublishTimeout: 24 * time.Hour})
		sized := func(id string, bytes int) []*publisher.Item {
			items := r.items(id)
			items[0].Message.Event.Data = make([]byte, bytes)
			return items
		}
		p.add(sized("first/1", 3000))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		large, small := make(chan error, 1), make(chan error, 1)
		go func() { large <- p.Add(ctx, sized("large/1", 8000)) }()
		synctest.Wait()
		go func() { small <- p.Add(t.Context(), sized("small/1", 1)) }()
		time.Sleep(30 * time.Second)
		if len(small) != 0 {
			t.Error("a small item passed a large one that waits")
		}
		if err := <-large; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Add = %v, want the deadline", err)
		}
		synctest.Wait()
		if len(small) != 1 {
			t.Error("a small item still waits behind one that gave up")
		}
	})
}

// A caller of Add that gives up leaves its place in the queue.
func TestAddCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnPublish = func(context.Context, []*sinks.Message) { time.Sleep(time.Minute) }
		p := start(t, sink, publisher.Config{MaxItems: 2, PublishTimeout: time.Hour})
		p.add(r.items("a/1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Add(ctx, r.items("b/1", "b/2", "b/3")) // one fits
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Add = %v, want the deadline", err)
		}
		p.drain()
		if got := r.ids(); got != "a/1 b/1" && got != "b/1 a/1" {
			t.Errorf("settled %q, want a/1 and b/1", got)
		}
		if s := p.Status(); s.QueuedItems != 0 || s.QueuedBytes != 0 {
			t.Errorf("status %+v", s)
		}
	})
}
