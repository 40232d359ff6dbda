package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

func TestSpot(t *testing.T) {
	errEnded := errors.New("ended")
	wait := func(s *ratelimit.Spot, ctx context.Context, step func() bool) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.Wait(ctx, step) }()
		synctest.Wait()
		return done
	}
	run := func(name string, test func(t *testing.T, s *ratelimit.Spot)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, ratelimit.NewSpot()) })
		})
	}
	run("a step runs on the goroutine that offers, and the consumer continues to wait", func(t *testing.T, s *ratelimit.Spot) {
		ctx, cancel := context.WithCancelCause(t.Context())
		steps := 0
		done := wait(s, ctx, func() bool { steps++; return true })
		s.Offer()
		s.Offer()
		if steps != 2 {
			t.Fatalf("steps = %d when Offer has returned, want 2", steps)
		}
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the consumer was woken: %v", err)
		default:
		}
		cancel(errEnded)
		if err := <-done; !errors.Is(err, errEnded) {
			t.Fatalf("Wait = %v, want the context's cause", err)
		}
	})
	run("a step that gives false wakes the consumer, once", func(t *testing.T, s *ratelimit.Spot) {
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := <-wait(s, ctx, nilStep(s)); err != nil {
			t.Fatal(err)
		}
		done := wait(s, ctx, func() bool { return true })
		select {
		case err := <-done:
			t.Fatalf("Wait = %v without an Offer", err)
		default:
		}
		cancel(errEnded)
		<-done
	})
	run("an Offer while nobody waits lets the next Wait return at once", func(t *testing.T, s *ratelimit.Spot) {
		s.Offer()
		step := func() bool { t.Error("a step without an Offer"); return true }
		if err := s.Wait(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	})
	run("an Offer during a step is followed by another step", func(t *testing.T, s *ratelimit.Spot) {
		steps := 0
		done := wait(s, t.Context(), func() bool {
			if steps++; steps == 1 {
				s.Offer()
			}
			return steps < 2
		})
		s.Offer()
		if err := <-done; err != nil || steps != 2 {
			t.Fatalf("Wait = %v after %d steps, want nil after 2", err, steps)
		}
	})
	run("a context that ends during a step is answered behind it", func(t *testing.T, s *ratelimit.Spot) {
		ctx, cancel := context.WithCancelCause(t.Context())
		release := make(chan struct{})
		done := wait(s, ctx, func() bool { <-release; return true })
		offered := make(chan struct{})
		go func() { s.Offer(); close(offered) }()
		synctest.Wait()
		cancel(errEnded)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Wait = %v while its step runs", err)
		default:
		}
		close(release)
		<-offered
		if err := <-done; !errors.Is(err, errEnded) {
			t.Fatalf("Wait = %v, want the context's cause", err)
		}
		s.Offer() // no step of a Wait that has ended
	})
}

func TestPark(t *testing.T) {
	// parked parks, and counts how often the consumer is resumed.
	type parked struct {
		*ratelimit.Spot
		steps, resumed int
	}
	park := func(p *parked, step func() bool) bool {
		return p.Park(func() bool { p.steps++; return step() }, func() { p.resumed++ })
	}
	keep, give := func() bool { return true }, func() bool { return false }
	run := func(name string, test func(t *testing.T, p *parked)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, &parked{Spot: ratelimit.NewSpot()}) })
		})
	}
	expect := func(t *testing.T, p *parked, steps, resumed int) {
		t.Helper()
		if synctest.Wait(); p.steps != steps || p.resumed != resumed {
			t.Fatalf("%d steps, resumed %d times; want %d and %d", p.steps, p.resumed, steps, resumed)
		}
	}
	run("steps run on the goroutine that offers, and no other is started", func(t *testing.T, p *parked) {
		if !park(p, keep) {
			t.Fatal("it does not park")
		}
		p.Offer()
		p.Offer()
		if p.steps != 2 {
			t.Fatalf("steps = %d when Offer has returned, want 2", p.steps)
		}
		expect(t, p, 2, 0)
	})
	run("a step that gives false resumes the consumer, once", func(t *testing.T, p *parked) {
		park(p, give)
		p.Offer()
		expect(t, p, 1, 1)
		p.Offer()
		if expect(t, p, 1, 1); park(p, keep) {
			t.Fatal("it parks, though an Offer came since")
		}
		if !park(p, keep) {
			t.Fatal("it does not park when it has seen the Offer")
		}
		expect(t, p, 1, 1)
	})
	run("an Offer during a step is followed by another step", func(t *testing.T, p *parked) {
		park(p, func() bool {
			if p.steps == 1 {
				p.Offer()
			}
			return p.steps < 2
		})
		p.Offer()
		expect(t, p, 2, 1)
	})
	run("a consumer may wait and park in turn", func(t *testing.T, p *parked) {
		park(p, give)
		p.Offer()
		expect(t, p, 1, 1)
		if err := p.Wait(t.Context(), nilStep(p.Spot)); err != nil {
			t.Fatal(err)
		}
		park(p, give)
		p.Offer()
		expect(t, p, 2, 2)
	})
}

// TestParkUnderRaces has many producers and a consumer that does a part in steps, parks, or waits,
// and whose context ends at some time: nothing is done twice at once, nothing offered is left
// undone, and the consumer ends once.
func TestParkUnderRaces(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			const producers, each = 4, 50
			s := ratelimit.NewSpot()
			ctx, cancel := context.WithCancel(t.Context())
			var offered, inside atomic.Int64
			var done int64 // the consumer's
			work := func() {
				if inside.Add(1) != 1 {
					t.Error("two at once")
				}
				done = offered.Load()
				inside.Add(-1)
			}
			step := func() bool {
				if ctx.Err() != nil || rand.IntN(3) == 0 {
					return false
				}
				work()
				return true
			}
			ended := make(chan struct{})
			forget := context.AfterFunc(ctx, s.Offer)
			var loop func()
			loop = func() {
				for ctx.Err() == nil {
					switch work(); rand.IntN(3) {
					case 0:
						if s.Wait(ctx, step) != nil {
							continue
						}
					default:
						if s.Park(step, loop) {
							return
						}
					}
				}
				close(ended) // panics when it ends twice
			}
			go loop()
			var all sync.WaitGroup
			for range producers {
				all.Go(func() {
					for range each {
						offered.Add(1)
						s.Offer()
						if rand.IntN(10) == 0 {
							time.Sleep(time.Microsecond)
						}
					}
				})
			}
			all.Wait()
			if synctest.Wait(); done != producers*each {
				t.Errorf("%d of %d are done", done, producers*each)
			}
			cancel()
			<-ended
			forget()
		})
	}
}

// nilStep is a step that is offered at once, and leaves the work to the consumer.
func nilStep(s *ratelimit.Spot) func() bool {
	go s.Offer()
	return func() bool { return false }
}

// TestNothingIsLeft has many producers, and a consumer that does a part in steps and the rest
// itself: nothing is done twice at once, and nothing is left undone.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const producers, each = 4, 5000
		s := ratelimit.NewSpot()
		var offered, inside atomic.Int64
		var done, inline int64 // the consumer's
		work := func() {
			if inside.Add(1) != 1 {
				t.Error("two at once")
			}
			for done < offered.Load() {
				done++
			}
			inside.Add(-1)
		}
		step := func() bool {
			inline++
			if rand.IntN(3) == 0 {
				return false
			}
			work()
			return done < producers*each
		}
		consumed := make(chan error, 1)
		go func() {
			for done < producers*each { // forever, if something is left
				if err := s.Wait(t.Context(), step); err != nil {
					consumed <- err
					return
				}
				work()
			}
			consumed <- nil
		}()
		synctest.Wait() // it waits, so the first step runs on a producer's goroutine
		var all sync.WaitGroup
		for range producers {
			all.Go(func() {
				for range each {
					offered.Add(1)
					s.Offer()
				}
			})
		}
		if err := <-consumed; err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if inline == 0 {
			t.Fatal("no step ran on a producer's goroutine")
		}
	})
}
