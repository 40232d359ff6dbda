package ratelimit

import (
	"math/rand/v2"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Limiter decides how long a failed key waits before it is tried again. It is client-go's
// interface, so any limiter written for a controller fits.
type Limiter[K comparable] = workqueue.TypedRateLimiter[K]

// Exponential lets a key wait initial, then twice as long after each failure, at most longest.
func Exponential[K comparable](initial, longest time.Duration) Limiter[K] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[K](initial, longest)
}

// FullJitter spreads the delays of another limiter evenly between zero and what it says. Keys that
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
