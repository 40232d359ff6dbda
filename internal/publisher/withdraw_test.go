package publisher_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Withdrawn implements publisher.Withdrawer.
func (r *recorder) Withdrawn(items []*publisher.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range items {
		if it.Settler != r || r.settled[it] {
			r.t.Errorf("%s is given back, and was settled or is another's", it.Message.Event.ID)
		}
		r.back = append(r.back, it.Message.Event.ID)
	}
}

// Idle implements publisher.Withdrawer.
func (r *recorder) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.settled)+len(r.back) == r.made
}

// withdrawn is what came back, sorted.
func (r *recorder) withdrawn() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(r.back)), " ")
}

func TestWhatIsWithdrawnComesBackAndTheRestKeepsItsOrder(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		var away atomic.Bool
		away.Store(true)
		sink, mine, others := newSink(t, order), newRecorder(t), newRecorder(t)
		sink.onMessage = func(*event.Event) answer {
			if away.Load() {
				return answer{err: errAway}
			}
			return answer{}
		}
		p := start(t, sink, publisher.Config{})
		p.add(mine.items("a/1", "b/1", "c/1"))
		p.add(others.items("d/1", "a/1", "e/1"))
		p.add(mine.items("a/2"))
		p.add(others.items("d/2", "e/2"))
		time.Sleep(time.Minute)
		synctest.Wait()
		p.Withdraw(mine)
		if got := mine.withdrawn(); got != "a/1 a/2 b/1 c/1" {
			t.Errorf("came back: %q", got)
		}
		away.Store(false)
		p.drain()
		if mine.count() != 0 || others.count() != 5 {
			t.Errorf("%d of mine are settled, %d of the others'", mine.count(), others.count())
		}
		for _, object := range []string{"d", "e"} {
			wantOrder(t, sink, object, object+"/1", object+"/2")
		}
		if got := sink.storedOf("b"); got != "" {
			t.Errorf("sent all the same: %q", got)
		}
	})
}

func TestASinkThatIsAwayIsNotBackBecauseNothingIsLeftToTry(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		sink.onMessage = func(*event.Event) answer { return answer{err: errAway} }
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "b/1"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		p.Withdraw(r)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := p.Status(); s.Connected {
			t.Errorf("%+v", s)
		}
		sink.onMessage = nil
		p.add(r.items("a/2"))
		p.drain()
		wantOrder(t, sink, "a", "a/2")
	})
}

func TestWhatIsInACallIsSettledOrComesBackAndNothingFollowsIt(t *testing.T) {
	for name, c := range map[string]struct {
		answer        answer
		settled, back string
	}{
		"taken":     {answer{}, "a/1", "a/2 a/3"},
		"not taken": {answer{err: errBusy}, "", "a/1 a/2 a/3"},
		"away":      {answer{err: errAway}, "", "a/1 a/2 a/3"},
	} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) {
				sink, r := newSink(t, order), newRecorder(t)
				hung := make(chan struct{})
				sink.onPublish = func(ctx context.Context, _ []*sinks.Message) { <-hung }
				sink.onMessage = func(e *event.Event) answer {
					if e.ID == "a/1" {
						return c.answer
					}
					return answer{}
				}
				p := start(t, sink, publisher.Config{})
				p.add(r.items("a/1"))
				synctest.Wait()
				p.add(r.items("a/2"))
				p.Withdraw(r)
				p.add(r.items("a/3")) // from one who does not know yet
				close(hung)
				time.Sleep(time.Hour)
				synctest.Wait()
				if r.ids() != c.settled || r.withdrawn() != c.back {
					t.Errorf("settled: %q, came back: %q", r.ids(), r.withdrawn())
				}
				if got := sink.storedOf("a"); strings.Contains(got, "a/2") || strings.Contains(got, "a/3") {
					t.Errorf("sent all the same: %q", got)
				}
				p.add(r.items("a/4")) // nothing of before is there any more
				p.drain()
				if !strings.HasSuffix(r.ids(), "a/4") {
					t.Errorf("settled: %q", r.ids())
				}
			})
		})
	}
}

func TestARefusedMessageThatCanNotBeBuriedComesBackAndWhatTheSinkHasBehindItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r, others := newSink(t, sinks.ByLane), newRecorder(t), newRecorder(t)
		sink.onMessage = refuse("a/1")
		sink.onDeadLetter = func(*event.Event) error { return errBusy }
		p := start(t, sink, publisher.Config{})
		p.add(append(r.items("a/1"), others.items("a/2")...))
		time.Sleep(time.Minute)
		synctest.Wait()
		p.Withdraw(r)
		p.drain()
		wantOrder(t, sink, "a", "a/2")
		if others.ids() != "a/2" || r.withdrawn() != "a/1" || len(sink.dead) > 0 || len(sink.stored["a"]) != 1 {
			t.Errorf("settled: %q, came back: %q, dead letters: %q, stored: %q", others.ids(), r.withdrawn(), sink.dead, sink.stored["a"])
		}
	})
}

func TestWhatHasNoLaneYetComesBackWhenItHas(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		var unknown atomic.Bool
		unknown.Store(true)
		sink, r := newSink(t, order), newRecorder(t)
		sink.onLane = func(*event.Event) error {
			if unknown.Load() {
				return errBusy
			}
			return nil
		}
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2"))
		p.Withdraw(r)
		unknown.Store(false)
		p.drain()
		if r.withdrawn() != "a/1 a/2" || sink.storedOf("a") != "" {
			t.Errorf("came back: %q, stored: %q", r.withdrawn(), sink.storedOf("a"))
		}
	})
}

func TestWhatWaitsForTheRateLimitComesBack(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink, r := newSink(t, order), newRecorder(t)
		cfg := publisher.Config{}
		cfg.RateLimit.PerSecond, cfg.RateLimit.Burst = 0.1, 1
		p := start(t, sink, cfg)
		p.add(r.items("a/1", "b/1"))
		synctest.Wait()
		p.Withdraw(r)
		p.drain()
		if r.count() != 1 || len(r.back) != 1 {
			t.Errorf("settled: %q, came back: %q", r.ids(), r.withdrawn())
		}
	})
}

func TestNoDeadLetterIsBegunOfWhatIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByLane), newRecorder(t)
		hung := make(chan struct{})
		sink.onMessage = refuse("a/1", "a/2")
		sink.onDeadLetter = func(*event.Event) error { <-hung; return nil }
		p := start(t, sink, publisher.Config{})
		p.add(r.items("a/1", "a/2"))
		synctest.Wait()
		p.Withdraw(r)
		close(hung)
		p.drain()
		if got := strings.Join(sink.dead, " "); got != "a/1" || r.ids() != "a/1" || r.withdrawn() != "a/2" {
			t.Errorf("dead letters: %q, settled: %q, came back: %q", got, r.ids(), r.withdrawn())
		}
	})
}
