package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// Limiter decides how long a failed key waits before it is tried again. It is client-go's
// interface, so any limiter written for a controller fits.
type Limiter[K comparable] = workqueue.TypedRateLimiter[K]

// Exponential lets a key wait initial, then twice as long after each failure, at most longest.
func Exponential[K comparable](initial, longest time.Duration) Limiter[K] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[K](initial, longest)
}

// FullJitter spreads the delays of another limiter evenly between zero and its own. Keys that
// failed together, as they do when a broker hiccups, then don't come back together.
func FullJitter[K comparable](limiter Limiter[K]) Limiter[K] {
	return jittered[K]{limiter}
}

type jittered[K comparable] struct{ Limiter[K] }

func (j jittered[K]) When(key K) time.Duration {
	delay := j.Limiter.When(key)
	if delay <= 0 {
		return 0
	}
	return rand.N(delay) + 1
}

// Backoff spaces the attempts at one shared thing, a connection for example: the delays double from
// Initial (default 100 ms) to Max (default 30 s), each shortened by up to a half. Unlike FullJitter
// it never comes near zero, since no other work fills the time here. It is for one goroutine.
type Backoff struct {
	Initial, Max time.Duration

	last time.Duration // before jitter; 0 after Reset
}

// Next returns how long to wait after one more failure.
func (b *Backoff) Next() time.Duration {
	longest := cmp.Or(b.Max, 30*time.Second)
	if b.last == 0 {
		b.last = cmp.Or(b.Initial, 100*time.Millisecond)
	} else if b.last < longest {
		b.last *= 2
	}
	b.last = min(b.last, longest)
	return b.last - rand.N(b.last/2+1)
}

// Reset starts again with Initial. Call it after a success.
func (b *Backoff) Reset() { b.last = 0 }

// BucketConfig bounds the output in events and in bytes. Zero rates mean no limit.
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

// NewBucket checks cfg. A Bucket without any limit never blocks.
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

// Wait blocks until so many events with so many bytes may go out, and returns how long that took.
// When ctx ends first, it returns ctx's error too. More than a burst waits until all of it has been
// earned, so an event larger than BurstBytes passes too. Tokens of a Wait whose ctx ended stay
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

// reserve takes n tokens, burst by burst since a limiter gives no more at once, and returns the
// time until the last of them is there.
func reserve(limiter *rate.Limiter, now time.Time, n int) (delay time.Duration) {
	if limiter.Limit() == rate.Inf {
		return 0
	}
	for burst := limiter.Burst(); n > 0; n -= burst {
		delay = limiter.ReserveN(now, min(n, burst)).DelayFrom(now)
	}
	return delay
}

// Sleep waits for d. It returns early, with the cause, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOr(ctx, d, nil) }

// SleepOr is Sleep that also returns early when woken is closed or has a value. With a negative d
// only woken and ctx end it.
func SleepOr(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	var due <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-woken:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// LogThrottle keeps a fault that hits many messages or objects from filling the log: a tenant may
// create any number of objects that can't be read. It is of one message. Its zero value is ready.
type LogThrottle struct {
	mu         sync.Mutex
	next       time.Time // guarded by mu
	suppressed int       // guarded by mu
}

// logInterval is how often a line passes: a fault that lasts for an hour is 360 lines.
const logInterval = 10 * time.Second

// Warn is Log of a warning.
func (t *LogThrottle) Warn(log *slog.Logger, message string, args ...any) {
	t.Log(log, slog.LevelWarn, message, args...)
}

// Log writes a line at the level when one is due, with the number of lines suppressed since the
// last one. Else it writes the line at the debug level.
func (t *LogThrottle) Log(log *slog.Logger, level slog.Level, message string, args ...any) {
	suppressed, ok := t.pass(time.Now())
	if !ok {
		level = slog.LevelDebug
	} else {
		args = append(args, "suppressed", suppressed)
	}
	//nolint:sloglint // a constant of the caller
	log.Log(context.Background(), level, message, args...)
}

func (t *LogThrottle) pass(now time.Time) (suppressed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.suppressed++
		return 0, false
	}
	suppressed, t.suppressed = t.suppressed, 0
	t.next = now.Add(logInterval)
	return suppressed, true
}
