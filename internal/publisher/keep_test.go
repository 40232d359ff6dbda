package publisher_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
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

// keeper keeps what it is given, after it has failed some times.
type keeper struct {
	mu       sync.Mutex
	failures int
	err      error // of the failures; nil for one that may pass
	kept     []string
}

func (k *keeper) keep(e *event.Event, refused, deadLetter error, attempts int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failures--; k.failures >= 0 {
		return cmp.Or(k.err, errors.New("no space left on device"))
	}
	k.kept = append(k.kept, fmt.Sprintf("%s %v|%v %d", e.ID, refused, deadLetter, attempts))
	return nil
}

// seen is what it has kept, and how often it will still fail.
func (k *keeper) seen() (kept []string, failures int) {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.kept), k.failures
}

// A dead letter that is refused for too long is kept in a file, and the object continues.
func TestKeptDeadLetter(t *testing.T) {
	for name, place := range map[string]error{"refuses": testkit.ErrTooLarge, "is busy": testkit.ErrBusy} {
		t.Run("the place "+name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) {
				sink, r := newSink(t, order), newRecorder(t)
				sink.OnMessage = refuse("a/1")
				sink.OnDeadLetter = func(*event.Event) error { return place }
				k := &keeper{failures: 2}
				p := start(t, sink, publisher.Config{Keep: k.keep, DeadLetterWait: 10 * time.Minute, Retry: publisher.Retry{Max: 10 * time.Second}})
				p.add(r.items("a/1", "a/2", "b/1"))
				time.Sleep(9 * time.Minute)
				wantOrder(t, sink, "b", "b/1")
				if kept, failures := k.seen(); r.count() != 1 || len(kept) != 0 || failures != 2 {
					t.Fatalf("%d settled, %q kept before its time", r.count(), kept)
				}
				time.Sleep(2 * time.Minute)
				kept, _ := k.seen()
				wantOrder(t, sink, "a", "a/2")
				if want := []string{fmt.Sprintf("a/1 too large|%v 1", place)}; !slices.Equal(kept, want) || r.count() != 3 {
					t.Errorf("kept %q, want %q; %d settled", kept, want, r.count())
				}
				if s := p.Status(); s.DeadLetters != 1 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// A dead letter that is refused, and for which the keeper has no room, waits for its place.
func TestKeptNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = refuse("a/1")
		var repaired atomic.Bool
		sink.OnDeadLetter = func(*event.Event) error {
			if repaired.Load() {
				return nil
			}
			return testkit.ErrTooLarge
		}
		k := &keeper{failures: math.MaxInt, err: publisher.ErrNoRoom}
		p := start(t, sink, publisher.Config{Keep: k.keep, DeadLetterWait: time.Minute})
		p.add(r.items("a/1", "a/2", "b/1"))
		time.Sleep(time.Hour)
		wantOrder(t, sink, "b", "b/1")
		if n := r.count(); n != 1 {
			t.Errorf("%d settled without room", n)
		}
		repaired.Store(true)
		p.drain()
		wantOrder(t, sink, "a", "a/2")
		if letters := sink.DeadLetters(); !slices.Equal(letters, []string{"a/1"}) {
			t.Errorf("dead letters %q", letters)
		}
	})
}

// An unavailable broker is not taken for a place that refuses.
func TestKeptNothingInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = refuse("a/1")
		sink.OnDeadLetter = func(*event.Event) error { return testkit.ErrUnreachable }
		k := &keeper{}
		p := start(t, sink, publisher.Config{Keep: k.keep, DeadLetterWait: time.Minute})
		p.add(r.items("a/1"))
		time.Sleep(time.Hour)
		if kept, _ := k.seen(); len(kept) != 0 || r.count() != 0 {
			t.Errorf("kept %q", kept)
		}
	})
}

// A refused message without a place for dead letters is kept at once.
func TestKeptRefusedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = refuse("a/1", "b/1")
		sink.OnDeadLetter = func(*event.Event) error { return sinks.ErrNoDeadLetter }
		k := &keeper{failures: 1, err: fmt.Errorf("folder: %w", publisher.ErrNoRoom)}
		var shown []string
		p := start(t, sink, publisher.Config{Keep: k.keep, OnSettle: func(settled []*publisher.Item) {
			for _, it := range settled {
				shown = append(shown, it.Message.Event.ID+" "+string(it.Outcome()))
			}
		}})
		for _, id := range []string{"b/1", "a/1"} { // there is no room for the first
			p.add(r.items(id))
			p.drain()
		}
		kept, _ := k.seen()
		if want := []string{"b/1 lost", "a/1 kept"}; !slices.Equal(shown, want) || len(kept) != 1 {
			t.Errorf("shown %q, want %q; kept %q", shown, want, kept)
		}
	})
}

// A refused message without a place for dead letters waits while the keeper fails.
func TestKeeperFailure(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		sink.OnMessage = refuse("a/1")
		sink.OnDeadLetter = func(*event.Event) error { return sinks.ErrNoDeadLetter }
		k := &keeper{failures: 5}
		var lost []string
		p := start(t, sink, publisher.Config{Keep: k.keep, OnSettle: func(settled []*publisher.Item) {
			for _, it := range settled {
				if it.Outcome() == publisher.Lost {
					lost = append(lost, it.Message.Event.ID)
				}
			}
		}})
		p.add(r.items("a/1", "a/2", "b/1"))
		p.drain()
		kept, failures := k.seen()
		wantOrder(t, sink, "a", "a/2")
		wantOrder(t, sink, "b", "b/1")
		if len(lost) > 0 || len(kept) != 1 || failures != -1 || r.count() != 3 {
			t.Errorf("lost %q, kept %q, %d failures left, %d settled", lost, kept, failures, r.count())
		}
	})
}
