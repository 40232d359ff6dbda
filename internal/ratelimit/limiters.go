package ratelimit

import (
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// Limiter decides how long a failed key waits before it is tried again. It is client-go's interface, so any limiter
// written for a controller fits.
type Limiter[K comparable] = workqueue.TypedRateLimiter[K]

// Exponential lets a key wait initial, then twice as long after each failure, at most longest.
func Exponential[K comparable](initial, longest time.Duration) Limiter[K] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[K](initial, longest)
}

// FastSlow lets a key wait fast for its first failures, and slow after them.
func FastSlow[K comparable](fast, slow time.Duration, failures int) Limiter[K] {
	return workqueue.NewTypedItemFastSlowRateLimiter[K](fast, slow, failures)
}

// TokenBucket spaces the retries of all keys together: perSecond of them in the long run, burst at once. Every call of
// When takes a token.
func TokenBucket[K comparable](perSecond float64, burst int) Limiter[K] {
	return &workqueue.TypedBucketRateLimiter[K]{Limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// MaxOf asks every limiter and waits as long as the strictest says.
func MaxOf[K comparable](limiters ...Limiter[K]) Limiter[K] {
	return workqueue.NewTypedMaxOfRateLimiter(limiters...)
}

// FullJitter spreads the delays of another limiter evenly between zero and what it says. Keys that failed together, as
// they do when a broker hiccups, then don't come back together.
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
