package ratelimit_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// mustGetAt checks that Get blocks until a moment after start, and returns the key exactly then.
func mustGetAt[K comparable](t *testing.T, q *ratelimit.Queue[K], start time.Time, after time.Duration, want K) {
	t.Helper()
	mustGet(t, q, want)
	if got := time.Since(start); got != after {
		t.Fatalf("got %v after %v, want after %v", want, got, after)
	}
	q.Done(want)
}

// Upstream: TestSimpleQueue.
func TestDelayedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		start := time.Now()
		q.AddAfter("foo", 50*time.Millisecond)
		wantLen(t, q, 0)
		mustGetAt(t, q, start, 50*time.Millisecond, "foo")
		time.Sleep(10 * time.Second)
		wantEmpty(t, q)
	})
}

// Upstream: TestDeduping.
func TestTheEarliestDelayCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		start := time.Now()
		q.AddAfter("foo", 50*time.Millisecond)
		q.AddAfter("foo", 70*time.Millisecond)
		mustGetAt(t, q, start, 50*time.Millisecond, "foo")
		time.Sleep(time.Second)
		wantEmpty(t, q)

		start = time.Now()
		q.AddAfter("foo", 50*time.Millisecond)
		q.AddAfter("foo", 30*time.Millisecond)
		mustGetAt(t, q, start, 30*time.Millisecond, "foo")
		time.Sleep(time.Second)
		wantEmpty(t, q)
	})
}

// A later key with a shorter delay comes first.
// Upstream: TestAddTwoFireEarly.
func TestShorterDelayFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		start := time.Now()
		q.AddAfter("foo", time.Second)
		q.AddAfter("bar", 50*time.Millisecond)
		mustGetAt(t, q, start, 50*time.Millisecond, "bar")
		q.AddAfter("baz", 2*time.Second)
		mustGetAt(t, q, start, time.Second, "foo")
		mustGetAt(t, q, start, 2050*time.Millisecond, "baz")
	})
}

// Delayed keys come in the order in which they are due.
// Upstream: TestCopyShifting.
func TestDelayOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.AddAfter("foo", time.Second)
		q.AddAfter("bar", 500*time.Millisecond)
		q.AddAfter("baz", 250*time.Millisecond)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantLen(t, q, 3)
		for _, key := range []string{"baz", "bar", "foo"} {
			mustGet(t, q, key)
		}
	})
}

// A failing key waits as long as the limiter says.
// Upstream: TestRateLimitingQueue.
func TestDelayOfFailingKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := ratelimit.NewQueue(ratelimit.Exponential[string](time.Millisecond, time.Second))
		fail := func(key string, want time.Duration) {
			t.Helper()
			start := time.Now()
			q.AddRateLimited(key)
			mustGetAt(t, q, start, want, key)
		}
		fail("one", time.Millisecond)
		fail("one", 2*time.Millisecond)
		fail("two", time.Millisecond)
		fail("two", 2*time.Millisecond)
		q.Forget("one")
		fail("one", time.Millisecond)
	})
}

// A delay that ends while the key is processed waits for Done.
func TestDelayEndsInProcessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("foo")
		mustGet(t, q, "foo")
		q.AddAfter("foo", time.Second)
		time.Sleep(2 * time.Second)
		wantEmpty(t, q)
		q.Done("foo")
		mustGet(t, q, "foo")
	})
}

func TestADelayOutlivesDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("foo")
		mustGet(t, q, "foo")
		start := time.Now()
		q.AddAfter("foo", time.Second)
		q.Done("foo")
		mustGetAt(t, q, start, time.Second, "foo")
	})
}

// A shutdown hands out delayed keys at once.
// client-go drops delayed keys at shutdown.
func TestDelayAtShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		start := time.Now()
		q.AddAfter("late", time.Hour)
		q.AddAfter("soon", time.Minute)
		q.ShutDown()
		mustGetAt(t, q, start, 0, "soon")
		mustGetAt(t, q, start, 0, "late")
		if _, err := get(t.Context(), q); !errors.Is(err, ratelimit.ErrShutDown) {
			t.Fatalf("Get = %v, want ErrShutDown", err)
		}
	})
}

// A key that fails during the drain is tried again after its delay.
func TestDelayDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("foo")
		attempts := 0
		var worker sync.WaitGroup
		worker.Go(func() {
			for {
				key, err := get(t.Context(), q)
				if err != nil {
					return
				}
				if attempts++; attempts < 4 {
					q.AddAfter(key, time.Second)
				}
				q.Done(key)
			}
		})
		start := time.Now()
		q.ShutDown()
		worker.Wait()
		// The first delay may or may not be cut short by the shutdown.
		if took := time.Since(start); attempts != 4 || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("%d attempts in %v, want 4 in 2 to 3 s", attempts, took)
		}
	})
}

func TestFlushEndsDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		start := time.Now()
		q.AddAfter("foo", time.Hour)
		q.Flush()
		mustGetAt(t, q, start, 0, "foo")
		q.AddAfter("foo", time.Second) // and new ones hold again
		mustGetAt(t, q, start, time.Second, "foo")
	})
}
