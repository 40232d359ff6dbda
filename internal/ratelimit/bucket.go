package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// BucketConfig bounds what goes out in events and in bytes. Zero rates mean no limit.
type BucketConfig struct {
	// PerSecond is how many events go out per second in the long run.
	PerSecond float64
	// Burst is how many may go out at once after a pause; default one second's worth, at least 1.
	Burst int
	// BytesPerSecond is how many payload bytes go out per second in the long run.
	BytesPerSecond float64
	// BurstBytes is how many may go out at once after a pause; default one second's worth, at least
	// 1.
	BurstBytes int
}

// Bucket is a pair of token buckets. It starts full.
type Bucket struct{ events, bytes *rate.Limiter }

// NewBucket checks a configuration. A Bucket without any limit never blocks.
func NewBucket(cfg BucketConfig) (*Bucket, error) {
	events, err := newLimiter("events", cfg.PerSecond, cfg.Burst)
	if err != nil {
		return nil, err
	}
	bytes, err := newLimiter("bytes", cfg.BytesPerSecond, cfg.BurstBytes)
	if err != nil {
		return nil, err
	}
	return &Bucket{events: events, bytes: bytes}, nil
}

func newLimiter(unit string, perSecond float64, burst int) (*rate.Limiter, error) {
	if perSecond < 0 || math.IsNaN(perSecond) || burst < 0 {
		return nil, fmt.Errorf("rate limit of %v %s per second, burst %d: must not be negative "+
			"(0 means no limit)", perSecond, unit, burst)
	}
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, math.MaxInt), nil
	}
	second := int(min(math.Ceil(perSecond), math.MaxInt32))
	return rate.NewLimiter(rate.Limit(perSecond), cmp.Or(burst, max(second, 1))), nil
}

// Burst is the most that should go out in one call: a larger batch would wait for all its tokens
// and then exceed the burst. Without a limit both are math.MaxInt.
func (b *Bucket) Burst() (events, bytes int) { return b.events.Burst(), b.bytes.Burst() }

// Wait blocks until so many events with so many bytes may go out, and returns how long that took;
// or until ctx ends, then it returns ctx's error too. More than a burst waits until all of it has
// been earned, so an event larger than BurstBytes passes too. Tokens of a Wait whose ctx ended stay
// used: its caller is about to stop.
func (b *Bucket) Wait(ctx context.Context, events, bytes int) (waited time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now := time.Now()
	delay := max(reserve(b.events, now, events), reserve(b.bytes, now, bytes))
	if delay <= 0 {
		return 0, nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return delay, nil
	case <-ctx.Done():
		return time.Since(now), ctx.Err()
	}
}

// reserve takes n tokens, burst by burst since a limiter gives no more at once, and returns when
// the last of them is there.
func reserve(limiter *rate.Limiter, now time.Time, n int) (delay time.Duration) {
	if limiter.Limit() == rate.Inf {
		return 0
	}
	for burst := limiter.Burst(); n > 0; n -= burst {
		delay = limiter.ReserveN(now, min(n, burst)).DelayFrom(now)
	}
	return delay
}
