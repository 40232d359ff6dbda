package publisher_test

import (
	"context"
	"errors"
	"slices"
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

// detach takes back what a recorder has added, waits for calls for so long, and gives the ids of
// what was tried, sorted. What is not settled by then must never be.
func (p *running) detach(r *recorder, patience time.Duration) (tried string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	var ids []string
	for _, it := range p.Detach(ctx, r) {
		ids = append(ids, it.Message.Event.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.detached = true
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func TestDetach(t *testing.T) {
	t.Run("everything comes back and the items of others keep their order", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			var away atomic.Bool
			away.Store(true)
			sink, mine, others := newSink(t, order), newRecorder(t), newRecorder(t)
			sink.OnMessage = func(*event.Event) testkit.Answer {
				if away.Load() {
					return testkit.Answer{Err: testkit.ErrUnreachable}
				}
				return testkit.Answer{}
			}
			p := start(t, sink, publisher.Config{})
			p.add(mine.items("a/1", "b/1", "c/1"))
			p.add(others.items("d/1", "a/1", "e/1"))
			p.add(mine.items("a/2"))
			p.add(others.items("d/2", "e/2"))
			time.Sleep(time.Minute)
			synctest.Wait()
			p.detach(mine, time.Second)
			away.Store(false)
			p.drain()
			if mine.count() != 0 || others.count() != 5 {
				t.Errorf("%d of mine are settled, %d of the others'", mine.count(), others.count())
			}
			for _, object := range []string{"d", "e"} {
				wantOrder(t, sink, object, object+"/1", object+"/2")
			}
			if got := storedOf(sink, "b"); got != "" {
				t.Errorf("sent all the same: %q", got)
			}
		})
	})
	t.Run("a sink that is unavailable is not back because nothing is left to try", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, r, later := newSink(t, order), newRecorder(t), newRecorder(t)
			sink.OnMessage = func(*event.Event) testkit.Answer { return testkit.Answer{Err: testkit.ErrUnreachable} }
			p := start(t, sink, publisher.Config{})
			p.add(r.items("a/1", "b/1"))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			p.detach(r, time.Second)
			time.Sleep(time.Hour)
			synctest.Wait()
			if s := p.Status(); s.Connected || s.QueuedItems != 0 {
				t.Errorf("%+v", s)
			}
			sink.OnMessage = nil
			p.add(later.items("a/2"))
			p.drain()
			wantOrder(t, sink, "a", "a/2")
		})
	})
	t.Run("what was never in a call was not tried", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, r := newSink(t, order), newRecorder(t)
			p := start(t, sink, publisher.Config{})
			p.Pause()
			p.add(r.items("a/1", "a/2"))
			if tried := p.detach(r, 0); tried != "" {
				t.Errorf("tried: %q", tried)
			}
			p.Resume()
			p.drain()
			if got := storedOf(sink, "a"); got != "" {
				t.Errorf("sent all the same: %q", got)
			}
		})
	})
}

// What is in a call when Detach begins is settled when the call is answered in time, and tried when
// it is not. Nothing that is behind it is sent.
func TestDetachDuringACall(t *testing.T) {
	for name, c := range map[string]struct {
		answer         testkit.Answer
		hangs          time.Duration
		settled, tried string
	}{
		"stored":     {testkit.Answer{}, time.Second, "a/1", ""},
		"not stored": {testkit.Answer{Err: testkit.ErrBusy}, time.Second, "", "a/1"},
		"away":       {testkit.Answer{Err: testkit.ErrUnreachable}, time.Second, "", "a/1"},
		"no answer":  {testkit.Answer{Err: context.Canceled}, time.Hour, "", "a/1"},
	} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) {
				sink, r, later := newSink(t, order), newRecorder(t), newRecorder(t)
				sink.OnPublish = func(ctx context.Context, batch []*sinks.Message) {
					if batch[0].Event.ID != "a/1" {
						return
					}
					select {
					case <-time.After(c.hangs):
					case <-ctx.Done():
					}
				}
				sink.OnMessage = func(e *event.Event) testkit.Answer {
					if e.ID == "a/1" {
						return c.answer
					}
					return testkit.Answer{}
				}
				p := start(t, sink, publisher.Config{})
				p.add(r.items("a/1"))
				synctest.Wait()
				p.add(r.items("a/2"))
				began := time.Now()
				tried := p.detach(r, 2*time.Second)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
				if r.ids() != c.settled || tried != c.tried {
					t.Errorf("settled: %q, tried: %q", r.ids(), tried)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := storedOf(sink, "a"); strings.Contains(got, "a/2") {
					t.Errorf("sent all the same: %q", got)
				}
				p.add(later.items("a/3")) // nothing of before is there any more
				p.drain()
				if later.ids() != "a/3" {
					t.Errorf("settled: %q", later.ids())
				}
			})
		})
	}
}

// One of two settlers of a call is detached.
func TestDetachOfOneSettler(t *testing.T) {
	t.Run("a call that is cancelled is made again for the others at once", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, mine, others := newSink(t, order), newRecorder(t), newRecorder(t)
			sink.Bounds.Concurrency = 1
			calls := 0
			sink.OnPublish = func(ctx context.Context, _ []*sinks.Message) {
				if calls++; calls == 1 {
					<-ctx.Done()
				}
			}
			sink.OnMessage = func(*event.Event) testkit.Answer {
				if calls == 1 {
					return testkit.Answer{Err: context.Canceled}
				}
				return testkit.Answer{}
			}
			p := start(t, sink, publisher.Config{})
			p.Pause()
			p.add(append(mine.items("a/1"), others.items("a/2", "b/1")...))
			p.Resume()
			synctest.Wait()
			p.detach(mine, 0)
			began := time.Now()
			p.drain()
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("the others had to wait %s", took)
			}
			wantOrder(t, sink, "a", "a/2")
			wantOrder(t, sink, "b", "b/1")
		})
	})
	t.Run("a sink that is tried after an outage is tried again", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, mine, others := newSink(t, order), newRecorder(t), newRecorder(t)
			sink.Bounds.Concurrency = 1
			calls := 0
			sink.OnPublish = func(ctx context.Context, _ []*sinks.Message) {
				if calls++; calls == 2 {
					<-ctx.Done()
				}
			}
			sink.OnMessage = func(*event.Event) testkit.Answer {
				switch calls {
				case 1:
					return testkit.Answer{Err: testkit.ErrUnreachable}
				case 2:
					return testkit.Answer{Err: context.Canceled}
				}
				return testkit.Answer{}
			}
			p := start(t, sink, publisher.Config{})
			p.add(mine.items("a/1"))
			time.Sleep(time.Second) // it hangs in the second call
			synctest.Wait()
			p.detach(mine, 0)
			p.add(others.items("b/1"))
			p.drain()
			if s := p.Status(); !s.Connected || others.ids() != "b/1" {
				t.Errorf("%+v, settled: %q", s, others.ids())
			}
		})
	})
}

func TestDetachOfRefused(t *testing.T) {
	t.Run("what the sink has behind a refused message is settled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink, r, others := newSink(t, sinks.ByLane), newRecorder(t), newRecorder(t)
			sink.OnMessage = refuse("a/1")
			sink.OnDeadLetter = func(*event.Event) error { return testkit.ErrBusy }
			p := start(t, sink, publisher.Config{})
			p.add(append(r.items("a/1", "a/2"), others.items("a/3")...))
			time.Sleep(time.Minute)
			synctest.Wait()
			tried := p.detach(r, time.Second)
			p.drain()
			wantOrder(t, sink, "a", "a/2", "a/3")
			if others.ids() != "a/3" || r.ids() != "a/2" || tried != "" ||
				len(sink.DeadLetters()) > 0 || len(sink.Stored("a")) != 2 {
				t.Errorf("settled: %q and %q, tried: %q, dead letters: %q", others.ids(), r.ids(), tried, sink.DeadLetters())
			}
		})
	})
	t.Run("no dead letter is begun", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sink, r := newSink(t, sinks.ByLane), newRecorder(t)
			sink.OnMessage = refuse("a/1", "a/2")
			sink.OnDeadLetter = func(*event.Event) error { time.Sleep(time.Second); return nil }
			p := start(t, sink, publisher.Config{})
			p.add(r.items("a/1", "a/2"))
			synctest.Wait()
			p.detach(r, time.Minute)
			p.drain()
			if got := strings.Join(sink.DeadLetters(), " "); got != "a/1" || r.ids() != "a/1" {
				t.Errorf("dead letters: %q, settled: %q", got, r.ids())
			}
		})
	})
}

func TestDetachOfWaiting(t *testing.T) {
	t.Run("what has no lane comes back at once", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			var unknown atomic.Bool
			unknown.Store(true)
			sink, r, others := newSink(t, order), newRecorder(t), newRecorder(t)
			sink.OnLane = func(*event.Event) error {
				if unknown.Load() {
					return testkit.ErrBusy
				}
				return nil
			}
			p := start(t, sink, publisher.Config{})
			p.add(r.items("a/1", "a/2", "b/1"))
			p.add(others.items("a/3", "a/4"))
			p.detach(r, time.Second)
			unknown.Store(false)
			p.drain()
			wantOrder(t, sink, "a", "a/3", "a/4")
			if r.ids() != "" || others.ids() != "a/3 a/4" || storedOf(sink, "b") != "" {
				t.Errorf("settled: %q and %q, stored: %q", r.ids(), others.ids(), storedOf(sink, "b"))
			}
		})
	})
	t.Run("what waits for the rate limit comes back", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, r := newSink(t, order), newRecorder(t)
			cfg := publisher.Config{}
			cfg.RateLimit.PerSecond, cfg.RateLimit.Burst = 0.1, 1
			p := start(t, sink, cfg)
			p.add(r.items("a/1", "b/1"))
			synctest.Wait()
			if tried := p.detach(r, time.Second); tried != "" || r.count() != 1 {
				t.Errorf("settled: %q, tried: %q", r.ids(), tried)
			}
			p.drain()
		})
	})
	t.Run("what a call of Add that has failed took comes back", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, r, later := newSink(t, order), newRecorder(t), newRecorder(t)
			p := start(t, sink, publisher.Config{MaxItems: 2})
			p.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := p.Add(ctx, r.items("a/1", "a/2", "a/3"))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Add: %v", err)
			}
			p.detach(r, time.Second)
			p.Resume()
			p.add(later.items("a/4"))
			p.drain()
			wantOrder(t, sink, "a", "a/4")
		})
	})
	t.Run("a publisher that has ended gives everything back", func(t *testing.T) {
		eachOrder(t, func(t *testing.T, order sinks.Order) {
			sink, r := newSink(t, order), newRecorder(t)
			sink.OnPublish = func(ctx context.Context, _ []*sinks.Message) { <-ctx.Done() }
			sink.OnMessage = func(*event.Event) testkit.Answer { return testkit.Answer{Err: context.Canceled} }
			p := start(t, sink, publisher.Config{})
			p.add(r.items("a/1", "a/2", "b/1"))
			synctest.Wait()
			p.stop()
			p.detach(r, time.Second)
			if s := p.Status(); s.QueuedItems != 0 || r.count() != 0 {
				t.Errorf("%+v, settled: %q", s, r.ids())
			}
		})
	})
}

func TestPositionAfterDetach(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		sink := &readableSink{Session: newSink(t, order)}
		now := byte(1)
		sink.position = func() []byte { return []byte{now} }
		calls := 0
		sink.OnPublish = func(ctx context.Context, _ []*sinks.Message) {
			if calls++; calls == 1 {
				<-ctx.Done()
			}
		}
		sink.OnMessage = func(*event.Event) testkit.Answer {
			if calls == 1 {
				return testkit.Answer{Err: context.Canceled, Stored: true}
			}
			return testkit.Answer{}
		}
		r, other, again := newRecorder(t), newRecorder(t), newRecorder(t)
		p := start(t, sink, publisher.Config{})
		at := func(when string, want byte) {
			t.Helper()
			now++
			if got := p.Position(); got[0] != want {
				t.Errorf("%s the position is %d, want %d", when, got[0], want)
			}
		}
		p.add(r.items("a/1"))
		synctest.Wait()
		at("during the call", 1)
		if tried := p.detach(r, 0); tried != "a/1" {
			t.Errorf("tried: %q", tried)
		}
		at("after Detach", 1)
		p.add(other.items("b/1"))
		p.drain()
		release(other)
		at("when another event is settled", 1)
		p.add(again.items("a/1"))
		p.drain()
		at("until the settler releases what it holds", 1)
		release(again)
		at("when the event is settled", 6)
	})
}

// release releases the holds of what was settled.
func release(r *recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for it := range r.settled {
		it.Hold.Release()
		it.Hold = nil
	}
}
