package publisher_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// fails answers an error for one event, and takes every other one.
func fails(id string, err func() error) func(e *event.Event) testkit.Answer {
	return func(e *event.Event) testkit.Answer {
		if e.ID != id {
			return testkit.Answer{}
		}
		return testkit.Answer{Err: err()}
	}
}

// A message that fails as often as Retry allows is a dead letter with the last error, and the next
// one of its object is stored behind it.
func TestGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		retry  publisher.Retry
		reason string
	}{
		"attempts": {publisher.Retry{MaxAttempts: 3}, "given up after 3 attempts in "},
		"age": {
			publisher.Retry{Initial: time.Minute, Max: time.Minute, MaxAge: 10 * time.Minute},
			"attempts in 10m",
		},
		"one attempt": {publisher.Retry{MaxAttempts: 1}, "given up after 1 attempts in 0s: busy"},
	} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) {
				sink, r := newSink(t, order), newRecorder(t)
				sink.OnMessage = fails("a/2", func() error { return testkit.ErrBusy })
				p := start(t, sink, publisher.Config{Retry: c.retry})
				p.add(r.items("a/1", "a/2", "a/3", "b/1"))
				p.awaitSettled(r, 4)
				wantOrder(t, sink, "a", "a/1", "a/3")
				letters, reasons := sink.DeadLetters(), sink.Reasons()
				if len(letters) != 1 || letters[0] != "a/2" || !strings.Contains(reasons[0].Error(), c.reason) ||
					!errors.Is(reasons[0], testkit.ErrBusy) {
					t.Errorf("dead letters %q, want a/2 because of %q: %v", letters, c.reason, reasons)
				}
				if s := p.Status(); s.DeadLetters != 1 || s.Blocked != "" || s.QueuedItems != 0 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// The dead letter of a given-up message does not wait for the delay of what failed behind it.
func TestGiveUpBeforeDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByLane), newRecorder(t)
		var tried, letter, stored time.Time
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if letter.IsZero() {
				tried = time.Now()
				return testkit.Answer{Err: testkit.ErrBusy}
			}
			stored = time.Now()
			return testkit.Answer{}
		}
		sink.OnDeadLetter = func(*event.Event) error { letter = time.Now(); return nil }
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{
			Initial: time.Minute, Max: time.Minute, MaxAttempts: 2,
		}})
		p.add(r.items("a/1", "a/2"))
		p.awaitSettled(r, 2)
		if letter != tried || stored != letter {
			t.Errorf("the letter came %v after the last attempt, a/2 %v later", letter.Sub(tried), stored.Sub(letter))
		}
		wantOrder(t, sink, "a", "a/2")
	})
}

// An outage uses up no attempts and no time, and a message that is not sent uses up no attempt.
func TestGiveUpNotInOutage(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		notSent := fmt.Errorf("%w: wait", sinks.ErrNotSent)
		answers := slices.Concat([]error{testkit.ErrBusy}, slices.Repeat([]error{notSent}, 5),
			slices.Repeat([]error{testkit.ErrUnreachable}, 10),
			[]error{testkit.ErrBusy, nil})
		sink.OnMessage = fails("a/1", func() error {
			err := answers[0]
			answers = answers[1:]
			return err
		})
		p := start(t, sink, publisher.Config{Retry: publisher.Retry{MaxAttempts: 3, MaxAge: time.Minute}})
		p.add(r.items("a/1", "a/2"))
		p.awaitSettled(r, 2)
		wantOrder(t, sink, "a", "a/1", "a/2")
		if letters := sink.DeadLetters(); len(letters) > 0 {
			t.Errorf("dead letters %q", letters)
		}
	})
}

// A payload that can't be kept elsewhere is given up too.
func TestGiveUpClaim(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSizedSink(t, order, 160), newRecorder(t)
		sink.onClaim = func(*event.Event) error { return testkit.ErrBusy }
		p := start(t, sink, publisher.Config{
			Oversize: []publisher.Oversize{publisher.Claim}, Retry: publisher.Retry{MaxAttempts: 2},
		})
		items := r.items("a/1", "a/2")
		items[0].Message.Event.Data = make([]byte, 300)
		p.add(items)
		p.awaitSettled(r, 2)
		wantOrder(t, sink.Session, "a", "a/2")
		if letters := sink.DeadLetters(); !slices.Equal(letters, []string{"a/1"}) {
			t.Errorf("dead letters %q", letters)
		}
	})
}

// What the adder wants back, and what has no place for dead letters, is given up too.
func TestGiveUpElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		sink.OnMessage = func(e *event.Event) testkit.Answer { return testkit.Answer{Err: testkit.ErrBusy} }
		sink.OnDeadLetter = func(*event.Event) error { return sinks.ErrNoDeadLetter }
		var kept []string
		p := start(t, sink, publisher.Config{
			Retry: publisher.Retry{MaxAttempts: 2},
			Keep: func(e *event.Event, refused, _ error, attempts int) error {
				if !errors.Is(refused, testkit.ErrBusy) || attempts != 2 {
					t.Errorf("%s was kept after %d attempts: %v", e.ID, attempts, refused)
				}
				kept = append(kept, e.ID)
				return nil
			},
		})
		items := r.items("a/1", "b/1")
		items[1].Return = true
		p.add(items)
		p.awaitSettled(r, 2)
		if !slices.Equal(kept, []string{"a/1"}) || items[1].Outcome() != publisher.Returned {
			t.Errorf("kept %q, b/1 is %s", kept, items[1].Outcome())
		}
	})
}
