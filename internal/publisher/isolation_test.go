package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Each recorder stands for a pipeline: a resource of an informer.
func TestIsolation(t *testing.T) {
	// sized makes items with payloads of half a MiB, each of an object of its own.
	sized := func(r *recorder, name string, n int) []*publisher.Item {
		items := r.items(numbered(name, n)...)
		for _, it := range items {
			it.Message.Event.Name = it.Message.Event.ID
			it.Message.Event.Data = make([]byte, 512<<10)
		}
		return items
	}
	t.Run("what has no topic leaves room for what has one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := newSink(t, sinks.ByObject)
			var created atomic.Bool
			sink.OnLane = func(e *event.Event) error {
				if topic, _, _ := strings.Cut(e.ID, "/"); topic != "good" && !created.Load() {
					return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("topic %q does not exist", topic)}
				}
				return nil
			}
			p, good := start(t, sink, publisher.Config{}), newRecorder(t)
			var adders sync.WaitGroup
			var missing []*recorder
			for i := range 8 { // 100 MiB for each of eight topics
				r := newRecorder(t)
				missing = append(missing, r)
				items := sized(r, fmt.Sprint("missing", i), 200)
				adders.Go(func() { p.add(items) })
			}
			synctest.Wait()
			s := p.Status()
			if most := s.CapacityBytes/4 + 1<<20; s.QueuedBytes == 0 || s.QueuedBytes > most {
				t.Errorf("%d bytes are queued, want at most %d", s.QueuedBytes, most)
			}
			if !strings.Contains(s.Blocked, `topic "missing`) {
				t.Errorf("blocked by %q: want the topic", s.Blocked)
			}
			soon, tooLate := context.WithTimeout(t.Context(), time.Minute)
			defer tooLate()
			if err := p.Add(soon, sized(good, "good", 500)); err != nil {
				t.Errorf("events of a pipeline that is not stuck: %v", err)
			}
			time.Sleep(time.Second)
			if good.count() < 500 {
				t.Errorf("%d events that have a topic are settled", good.count())
			}
			created.Store(true)
			adders.Wait()
			p.drain()
			for i, r := range missing {
				if r.count() != 200 {
					t.Errorf("%d events of the topic %d are settled", r.count(), i)
				}
			}
		})
	})
	t.Run("one topic gets a sixteenth", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := newSink(t, sinks.ByObject)
			sink.OnLane = func(*event.Event) error {
				return &sinks.Error{Class: sinks.Retry, Err: errors.New("topic does not exist")}
			}
			p := start(t, sink, publisher.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			var adders sync.WaitGroup
			for range 3 {
				items := sized(newRecorder(t), "a", 100)
				adders.Go(func() { _ = p.Add(ctx, items) })
			}
			synctest.Wait()
			if s := p.Status(); s.QueuedBytes > s.CapacityBytes/16 || s.QueuedBytes < s.CapacityBytes/20 {
				t.Errorf("%d bytes are queued of %d", s.QueuedBytes, s.CapacityBytes)
			}
			cancel()
			adders.Wait()
		})
	})
	t.Run("pipelines that are stuck leave room for others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink := newSink(t, sinks.ByObject)
			sink.OnMessage = func(e *event.Event) testkit.Answer {
				if strings.HasPrefix(e.ID, "stuck") {
					return testkit.Answer{Err: testkit.ErrBusy}
				}
				return testkit.Answer{Stored: true}
			}
			p, good := start(t, sink, publisher.Config{}), newRecorder(t)
			ctx, cancel := context.WithCancel(t.Context())
			var adders sync.WaitGroup
			for i := range 5 {
				items := sized(newRecorder(t), fmt.Sprint("stuck", i), 300)
				adders.Go(func() { _ = p.Add(ctx, items) })
			}
			time.Sleep(time.Second)
			if s := p.Status(); s.QueuedBytes < s.CapacityBytes/2 {
				t.Errorf("%d bytes are queued of %d", s.QueuedBytes, s.CapacityBytes)
			}
			soon, tooLate := context.WithTimeout(t.Context(), time.Minute)
			defer tooLate()
			if err := p.Add(soon, sized(good, "good", 100)); err != nil {
				t.Errorf("events of a pipeline that is not stuck: %v", err)
			}
			time.Sleep(time.Second)
			if good.count() < 100 {
				t.Errorf("%d events of the pipeline that is not stuck are settled", good.count())
			}
			cancel()
			adders.Wait()
		})
	})
}
