package handover_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/handover"
)

func TestSpot(t *testing.T) {
	errEnded := errors.New("ended")
	wait := func(s *handover.Spot, ctx context.Context, step func() bool) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.Wait(ctx, step) }()
		synctest.Wait()
		return done
	}
	run := func(name string, test func(t *testing.T, s *handover.Spot)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, handover.New()) })
		})
	}
	run("a step runs on the goroutine that offers, and the consumer goes on waiting", func(t *testing.T, s *handover.Spot) {
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
	run("a step that gives false wakes the consumer, once", func(t *testing.T, s *handover.Spot) {
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
	run("an Offer while nobody waits lets the next Wait return at once", func(t *testing.T, s *handover.Spot) {
		s.Offer()
		step := func() bool { t.Error("a step without an Offer"); return true }
		if err := s.Wait(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	})
	run("an Offer during a step is followed by another step", func(t *testing.T, s *handover.Spot) {
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
	run("a context that ends during a step is answered behind it", func(t *testing.T, s *handover.Spot) {
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

// nilStep is a step that is offered at once, and leaves the work to the consumer.
func nilStep(s *handover.Spot) func() bool {
	go s.Offer()
	return func() bool { return false }
}

// TestNothingIsLeft has many producers, and a consumer that does a part in steps and the rest
// itself: nothing is done twice at once, and nothing is left undone.
func TestNothingIsLeft(t *testing.T) {
	const producers, each = 4, 5000
	s := handover.New()
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
		if rand.IntN(3) == 0 {
			return false
		}
		inline++
		work()
		return done < producers*each
	}
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			for range each {
				offered.Add(1)
				s.Offer()
			}
		})
	}
	for done < producers*each { // forever, if something is left
		if err := s.Wait(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		work()
	}
	all.Wait()
	if inline == 0 {
		t.Fatal("no step ran on a producer's goroutine")
	}
}
