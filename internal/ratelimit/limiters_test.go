package ratelimit_test

import (
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

func wantDelays(t *testing.T, limiter ratelimit.Limiter[string], key string, want ...time.Duration) {
	t.Helper()
	for i, delay := range want {
		if got := limiter.When(key); got != delay {
			t.Errorf("failure %d of %s: delay %v, want %v", i+1, key, got, delay)
		}
	}
}

// The exponential limiter doubles the delay of a key until Forget.
// Upstream: TestItemExponentialFailureRateLimiter.
func TestExponential(t *testing.T) {
	const ms = time.Millisecond
	limiter := ratelimit.Exponential[string](ms, time.Second)
	wantDelays(t, limiter, "one", ms, 2*ms, 4*ms, 8*ms, 16*ms)
	wantDelays(t, limiter, "two", ms, 2*ms)
	if got := limiter.NumRequeues("one"); got != 5 {
		t.Errorf("NumRequeues = %d, want 5", got)
	}
	limiter.Forget("one")
	wantDelays(t, limiter, "one", ms)
}

// The exponential limiter never overflows.
// Upstream: TestItemExponentialFailureRateLimiterOverFlow.
func TestExponentialOverflow(t *testing.T) {
	limiter := ratelimit.Exponential[string](time.Millisecond, 1000*time.Second)
	for range 2000 {
		limiter.When("one")
	}
	wantDelays(t, limiter, "one", 1000*time.Second)
}

// Full jitter stays below the delay and fills the range.
func TestFullJitter(t *testing.T) {
	limiter := ratelimit.FullJitter(ratelimit.Exponential[string](time.Second, time.Second))
	low, high := 0, 0
	for range 1000 {
		switch got := limiter.When("one"); {
		case got <= 0 || got > time.Second:
			t.Fatalf("delay %v, want within (0, 1s]", got)
		case got < 500*time.Millisecond:
			low++
		default:
			high++
		}
	}
	if low < 400 || high < 400 {
		t.Errorf("%d delays in the lower half and %d in the upper of 1000: not even", low, high)
	}
}

// The backoff doubles within its bounds until it is reset.
func TestBackoff(t *testing.T) {
	b := ratelimit.Backoff{Initial: 100 * time.Millisecond, Max: time.Second}
	for round := range 3 {
		for i, full := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			full *= time.Millisecond
			if got := b.Next(); got < full/2 || got > full {
				t.Errorf("round %d, failure %d: %v, want between %v and %v", round, i+1, got, full/2, full)
			}
		}
		b.Reset()
	}
}
