package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

func newBucket(t *testing.T, cfg ratelimit.BucketConfig) *ratelimit.Bucket {
	t.Helper()
	b, err := ratelimit.NewBucket(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// took is how long a Wait blocked, in the fake time of the bubble.
func took(t *testing.T, b *ratelimit.Bucket, events, bytes int) time.Duration {
	t.Helper()
	start := time.Now()
	waited, err := b.Wait(t.Context(), events, bytes)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); waited != took {
		t.Errorf("Wait says that it blocked for %v, it took %v", waited, took)
	}
	return time.Since(start)
}

// A bucket with two rates keeps the stricter one.
func TestBucketStricterRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.BucketConfig{PerSecond: 10, Burst: 5, BytesPerSecond: 1000, BurstBytes: 1000})
		for _, step := range []struct {
			what          string
			events, bytes int
			want          time.Duration
		}{
			{"the burst is free", 5, 100, 0},
			{"then events are spaced", 2, 100, 200 * time.Millisecond},
			{"bytes left from before are free", 0, 800, 0},
			// 200 were earned while waiting
			{"then bytes are spaced", 1, 700, 500 * time.Millisecond},
		} {
			if got := took(t, b, step.events, step.bytes); got != step.want {
				t.Errorf("%s: waited %v, want %v", step.what, got, step.want)
			}
		}
	})
}

// A request larger than the burst waits for all of it.
func TestBucketBeyondBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.BucketConfig{PerSecond: 10, Burst: 3, BytesPerSecond: 100, BurstBytes: 100})
		if got := took(t, b, 23, 0); got != 2*time.Second {
			t.Errorf("23 events at 10/s with 3 at once: waited %v, want 2s", got)
		}
		if got := took(t, b, 0, 1100); got != 10*time.Second {
			t.Errorf("1100 bytes at 100/s with 100 at once: waited %v, want 10s", got)
		}
	})
}

func TestBucketDefaults(t *testing.T) {
	events, bytes := newBucket(t, ratelimit.BucketConfig{}).Burst()
	if events != math.MaxInt || bytes != math.MaxInt {
		t.Errorf("without limits: burst of %d events and %d bytes", events, bytes)
	}
	events, bytes = newBucket(t, ratelimit.BucketConfig{PerSecond: 2.5, BytesPerSecond: 0.1}).Burst()
	if events != 3 || bytes != 1 {
		t.Errorf("one second's worth: burst of %d events and %d bytes, want 3 and 1", events, bytes)
	}
	for _, cfg := range []ratelimit.BucketConfig{{PerSecond: -1}, {PerSecond: math.NaN()}, {Burst: -1}, {BytesPerSecond: -1}, {BurstBytes: -1}} {
		if _, err := ratelimit.NewBucket(cfg); err == nil {
			t.Errorf("NewBucket(%+v) took it", cfg)
		}
	}
}

// An ended context ends the wait.
func TestBucketCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.BucketConfig{PerSecond: 1, Burst: 1})
		took(t, b, 1, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := b.Wait(ctx, 1, 0); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond {
			t.Errorf("Wait = %v after %v", err, time.Since(start))
		}
		if _, err := b.Wait(ctx, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait with an ended context = %v", err)
		}
	})
}
