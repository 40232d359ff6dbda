package ratelimit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// enter passes at once, or fails the test.
func enter(t *testing.T, b *ratelimit.Breaker, probe bool) ratelimit.Pass {
	t.Helper()
	pass, err := b.Enter(t.Context())
	if err != nil || pass.Probe != probe {
		t.Fatalf("Enter: %+v, %v; want a probe: %v", pass, err, probe)
	}
	return pass
}

func demand(t *testing.T, b *ratelimit.Breaker, want int) {
	t.Helper()
	if calls, _ := b.Demand(); calls != want {
		t.Errorf("Demand: %d, want %d", calls, want)
	}
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ratelimit.NewBreaker(time.Second, time.Minute)
		first, second := enter(t, b, false), enter(t, b, false)
		demand(t, b, math.MaxInt)

		begun := time.Now()
		pause, tripped := b.Trip(first)
		if !tripped || pause <= 0 || pause > time.Second {
			t.Errorf("Trip: %v, %v", pause, tripped)
		}
		if _, tripped := b.Trip(second); tripped || b.Connected() {
			t.Error("two calls that failed together are one pause")
		}
		demand(t, b, 1)

		probe := enter(t, b, true)
		if took := time.Since(begun); took != pause {
			t.Errorf("the probe came after %v, want %v", took, pause)
		}
		if b.Succeed(first) {
			t.Error("an answer from before the pause ended it")
		}
		b.GiveUp(probe)
		if !b.Succeed(enter(t, b, true)) || !b.Connected() {
			t.Error("the probe's answer did not end the pause")
		}

		b.Hold(true)
		demand(t, b, 0)
		if !b.Held() || !b.Connected() {
			t.Error("an operator's hold says nothing about the broker")
		}
		b.Hold(false)
		enter(t, b, false)
	})
}
