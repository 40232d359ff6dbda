package ratelimit

import (
	"cmp"
	"container/list"
	"sync"
	"time"
)

// DefaultMaxFailing is how many failing keys a Bounded limiter remembers.
const DefaultMaxFailing = 65_536

// Bounded makes a limiter forget the key whose first failure is the oldest when more than limit
// keys (default DefaultMaxFailing) are failing. client-go's limiters remember a key until Forget,
// which a caller may miss. A key that was pushed out starts with the first delay again: it is
// retried sooner than it should be, never lost.
func Bounded[K comparable](limiter Limiter[K], limit int) Limiter[K] {
	return &bounded[K]{
		limiter: limiter,
		limit:   cmp.Or(limit, DefaultMaxFailing),
		known:   map[K]*list.Element{},
	}
}

type bounded[K comparable] struct {
	limiter Limiter[K]
	limit   int

	mu    sync.Mutex
	known map[K]*list.Element // guarded by mu: the keys that limiter remembers
	order list.List           // guarded by mu: the same keys by their first failure
}

func (b *bounded[K]) When(key K) time.Duration {
	if oldest, full := b.remember(key); full {
		b.limiter.Forget(oldest)
	}
	return b.limiter.When(key)
}

// remember records a failing key, and returns the key to forget for it.
func (b *bounded[K]) remember(key K) (oldest K, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[key] != nil {
		return oldest, false
	}
	if len(b.known) >= b.limit {
		oldest, full = b.order.Remove(b.order.Front()).(K), true
		delete(b.known, oldest)
	}
	b.known[key] = b.order.PushBack(key)
	return oldest, full
}

func (b *bounded[K]) Forget(key K) {
	b.mu.Lock()
	if e := b.known[key]; e != nil {
		b.order.Remove(e)
		delete(b.known, key)
	}
	b.mu.Unlock()
	b.limiter.Forget(key)
}

func (b *bounded[K]) NumRequeues(key K) int { return b.limiter.NumRequeues(key) }
