package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// An object without a lane keeps its order, and delays no other.
func TestLaneMissing(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		begun := time.Now()
		sink.OnLane = func(e *event.Event) error {
			if e.Name == "a" && e.ID != "a/1" && time.Since(begun) < 10*time.Second {
				return testkit.ErrBusy
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2", "b/1", "a/3", "b/2"))
		synctest.Wait()
		if s := p.Status(); s.Blocked != "busy" || s.Unrouted != 1 || s.QueuedItems != 2 || r.count() != 3 {
			t.Errorf("status %+v, %d settled; want 2 items of one object aside", s, r.count())
		}
		for i := range 20 {
			p.add(r.items(numbered("a", i+4)[i+3]))
			time.Sleep(time.Second)
		}
		p.drain()
		if s := p.Status(); s.Blocked != "" {
			t.Errorf("still blocked: %s", s.Blocked)
		}
		wantOrder(t, sink, "a", numbered("a", 23)...)
		wantOrder(t, sink, "b", "b/1", "b/2")
	})
}

// An event that no lane accepts is a dead letter.
func TestLaneDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnLane = func(e *event.Event) error {
			if e.ID == "a/2" {
				return testkit.ErrTooLarge // a topic name that is too long, for example
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2", "b/1"))
		p.drain()
		if got := strings.Join(sink.DeadLetters(), " "); got != "a/2" || r.count() != 3 {
			t.Errorf("dead letters %q, %d settled", got, r.count())
		}
	})
}

// An outage is found with one look-up, not with one per object.
func TestLaneLookUpsInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		begun := time.Now()
		var lookUps atomic.Int64
		sink.OnLane = func(*event.Event) error {
			if lookUps.Add(1); time.Since(begun) < time.Minute {
				return testkit.ErrUnreachable
			}
			return nil
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: time.Second, Max: 10 * time.Second}})
		p.add(r.items(objects(50)...))
		lookUps.Store(0)
		time.Sleep(59 * time.Second)
		if n := lookUps.Load(); n > 16 {
			t.Errorf("%d look-ups in a minute of outage, want one per backoff", n)
		}
		p.awaitSettled(r, 50)
	})
}

// Drain looks up lanes at once.
func TestDrainLookUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		var unknown atomic.Bool
		unknown.Store(true)
		sink.OnLane = func(*event.Event) error {
			if unknown.Load() {
				return testkit.ErrBusy
			}
			return nil
		}
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{Initial: time.Hour, Max: time.Hour}})
		p.add(r.items("a/1", "a/2"))
		synctest.Wait()
		unknown.Store(false)
		begun := time.Now()
		p.drain()
		if took := time.Since(begun); took != 0 {
			t.Errorf("drained after %v, want at once", took)
		}
	})
}

// A look-up that the caller ends blocks nothing.
func TestLaneLookUpCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		ctx, cancel := context.WithCancel(t.Context())
		sink.OnLane = func(e *event.Event) error {
			if e.ID == "b/1" {
				cancel()
				return ctx.Err()
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		if err := p.Add(ctx, r.items("a/1", "b/1", "c/1")); !errors.Is(err, context.Canceled) {
			t.Errorf("Add = %v, want the cancellation", err)
		}
		p.drain()
		if got := r.ids(); got != "a/1" {
			t.Errorf("settled %q, want a/1", got)
		}
	})
}

// Run waits for look-ups before it closes the sink.
func TestLaneLookUpsAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnLane = func(*event.Event) error {
			time.Sleep(time.Second)
			if sink.Closed() {
				t.Error("the sink was closed during a look-up")
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		added := make(chan error, 1)
		go func() { added <- p.Add(t.Context(), r.items("a/1")) }()
		synctest.Wait()
		p.stop()
		if err := <-added; err != nil {
			t.Errorf("Add = %v; the item was taken", err)
		}
	})
}

// All places that are missing are named.
func TestLanesBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		missing := true
		sink.OnLane = func(e *event.Event) error {
			if missing {
				return &sinks.Error{Class: sinks.Retry, Err: errors.New("no topic " + e.Name)}
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "e/1", "b/1", "a/2", "d/1", "c/1"))
		time.Sleep(5 * time.Second)
		if got, want := p.Status().Blocked, "no topic a; no topic b; no topic c; and 2 more"; got != want {
			t.Errorf("blocked for %q, want %q", got, want)
		}
		missing = false
		p.drain()
	})
}

// A sink that knows that its broker is unavailable is not connected.
func TestLaneOfUnconnectedSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &knowingSink{Session: newSink(t, sinks.ByObject)}
		p := start(t, sink, publisher.Config{})
		synctest.Wait()
		if s := p.Status(); !s.Connected || s.Blocked != "" {
			t.Errorf("status %+v", s)
		}
		sink.why = testkit.ErrUnreachable
		if s := p.Status(); s.Connected || s.LastError != testkit.ErrUnreachable.Error() || s.Blocked != "" {
			t.Errorf("away: status %+v", s)
		}
		sink.why = testkit.ErrBusy
		if s := p.Status(); !s.Connected || s.Blocked != testkit.ErrBusy.Error() {
			t.Errorf("blocked: status %+v", s)
		}
		sink.why = nil
	})
}

// knowingSink knows why nothing can be stored without being asked to.
type knowingSink struct {
	*testkit.Session
	why error
}

// Blocked implements sinks.Blocker.
func (s *knowingSink) Blocked() error { return s.why }

// A sink that stores nothing of an object is blocked after ten seconds, with the last cause, until
// it stores that.
func TestStalled(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		var full atomic.Bool
		full.Store(true)
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			if full.Load() && strings.HasPrefix(e.ID, "a") {
				return testkit.Answer{Err: errors.New("the stream is full")}
			}
			return testkit.Answer{Stored: true}
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "b/1"))
		time.Sleep(9 * time.Second)
		if s := p.Status(); s.Blocked != "" {
			t.Errorf("after 9 s it is blocked: %s", s.Blocked)
		}
		time.Sleep(3 * time.Second)
		if s := p.Status(); !strings.Contains(s.Blocked, "the stream is full") || !s.Connected {
			t.Errorf("after 12 s blocked is %q, connected %v", s.Blocked, s.Connected)
		}
		full.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := p.Status(); s.Blocked != "" {
			t.Errorf("everything is stored, and it is blocked: %s", s.Blocked)
		}
	})
}

// What counts as stalled, so that a gap passes it: no event of a sink that is silent as a whole.
func TestStalledItems(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"the broker refuses":          {errors.New("the stream is full"), 1},
		"one answer does not come":    {errors.New("no ack in time; the message may be stored or not"), 1},
		"the call does not end":       {fmt.Errorf("publish: %w", context.DeadlineExceeded), 0},
		"the broker can't be reached": {&sinks.Error{Class: sinks.Reconnect, Err: errors.New("refused")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink, r := newSink(t, sinks.ByObject), newRecorder(t)
				var fails atomic.Bool
				fails.Store(true)
				sink.OnMessage = func(e *event.Event) testkit.Answer {
					if fails.Load() && strings.HasPrefix(e.ID, "a") {
						return testkit.Answer{Err: c.err}
					}
					return testkit.Answer{Stored: true}
				}
				p := start(t, sink, publisher.Config{})
				items := r.items("a/1", "b/1")
				p.add(items)
				time.Sleep(15 * time.Second)
				if got := p.Stalled(items[0].Settler); got != c.want {
					t.Errorf("%d items are stalled, want %d", got, c.want)
				}
				fails.Store(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := p.Stalled(items[0].Settler); got > 0 {
					t.Errorf("all are stored, and %d are stalled", got)
				}
			})
		})
	}
}
