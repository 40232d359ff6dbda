package publisher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

var errShut = errors.New("the gate is shut")

// gate is open or shut.
type gate struct{ shut atomic.Bool }

func (g *gate) ask() error {
	if g.shut.Load() {
		return errShut
	}
	return nil
}

// Nothing is sent while the gate is shut.
func TestGateShut(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		var g gate
		g.shut.Store(true)
		sink, r := newSink(t, order), newRecorder(t)
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if e.ID == "b/1" {
				return testkit.Answer{Err: testkit.ErrTooLarge}
			}
			return testkit.Answer{}
		}
		p := start(t, sink, publisher.Config{Gate: g.ask})
		p.add(r.items("a/1", "b/1", "a/2"))
		time.Sleep(time.Minute)
		if calls := sink.Calls(); len(calls) > 0 || r.count() > 0 {
			t.Errorf("%d calls and %d items settled behind a gate that is shut", len(calls), r.count())
		}
		g.shut.Store(false)
		p.drain()
		wantOrder(t, sink, "a", "a/1", "a/2")
		if r.count() != 3 {
			t.Errorf("%d items settled, want 3", r.count())
		}
	})
}

// An answer that comes behind a shut gate settles nothing.
// What it is answered may be about what another process has stored.
func TestGateLateAnswer(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		var g gate
		sink, r := newSink(t, order), newRecorder(t)
		var calls atomic.Int32
		sink.OnPublish = func(context.Context, []*sinks.Message) { g.shut.Store(calls.Add(1) == 1) }
		p := start(t, sink, publisher.Config{Gate: g.ask})
		p.add(r.items("a/1"))
		time.Sleep(time.Minute)
		if r.count() > 0 {
			t.Error("it is settled")
		}
		g.shut.Store(false)
		p.drain()
		if calls.Load() != 2 || r.count() != 1 {
			t.Errorf("%d calls and %d items settled, want that it is sent again", calls.Load(), r.count())
		}
	})
}

// No dead letter is sent while the gate is shut.
func TestGateDeadLetter(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		var asked, opened atomic.Int32
		sink, r := newSink(t, order), newRecorder(t)
		sink.OnMessage = func(*event.Event) testkit.Answer { return testkit.Answer{Err: testkit.ErrTooLarge} }
		p := start(t, sink, publisher.Config{Gate: func() error {
			if asked.Add(1) > 2 && opened.Load() == 0 { // it was open before and after the attempt that was refused
				return errShut
			}
			return nil
		}})
		p.add(r.items("a/1"))
		time.Sleep(time.Minute)
		if n := len(sink.DeadLetters()); n > 0 || r.count() > 0 {
			t.Errorf("%d dead letters and %d items settled behind a gate that is shut", n, r.count())
		}
		opened.Store(1)
		p.drain()
		if n := len(sink.DeadLetters()); n != 1 || r.count() != 1 {
			t.Errorf("%d dead letters and %d items settled, want 1 of each", n, r.count())
		}
	})
}
