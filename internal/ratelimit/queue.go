package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrShutDown is returned by GetBatch when the queue was shut down and has nothing more to hand
// out.
var ErrShutDown = errors.New("queue is shut down")

// Queue hands keys to workers, each key to one worker at a time.
type Queue[K comparable] struct {
	limiter Limiter[K]
	// wake holds a token while there may be a key for a waiting worker. Whoever takes it passes it
	// on when keys are left, so one slot wakes any number of workers in sequence.
	wake chan struct{}

	mu      sync.Mutex
	entries map[K]*entry[K] // guarded by mu: every key that waits, is delayed or is with a worker
	ready   fifo[K]         // guarded by mu
	delayed delays[K]       // guarded by mu
	// guarded by mu: runs fire when the first of delayed is due; nil before the first delay
	timer *time.Timer
	free  fifo[K] // guarded by mu: entries for reuse
	down  bool    // guarded by mu: no new keys
}

// NewQueue makes a queue whose limiter spaces AddRateLimited. It starts nothing.
func NewQueue[K comparable](limiter Limiter[K]) *Queue[K] {
	return &Queue[K]{
		limiter: limiter,
		wake:    make(chan struct{}, 1),
		entries: map[K]*entry[K]{},
	}
}

// Add marks keys as in need of work. A key that waits already is not added again; one that is with
// a worker comes again after Done. A queue that was shut down ignores keys it doesn't know.
func (q *Queue[K]) Add(keys ...K) {
	if len(keys) == 0 {
		return
	}
	q.mu.Lock()
	for _, key := range keys {
		if e := q.entry(key); e != nil {
			q.push(e)
		}
	}
	q.unlock()
}

// AddAfter adds a key when delay has passed; of several delays of one key the earliest counts.
func (q *Queue[K]) AddAfter(key K, delay time.Duration) {
	if delay <= 0 {
		q.Add(key)
		return
	}
	q.mu.Lock()
	if e := q.entry(key); e != nil {
		q.delay(e, time.Now().Add(delay))
	}
	q.unlock()
}

// AddRateLimited adds a key when the limiter says so: after a failure. Call Forget once the key
// succeeded.
func (q *Queue[K]) AddRateLimited(key K) { q.AddAfter(key, q.limiter.When(key)) }

// Forget clears the failures of a key. It stays in the queue if it is there.
func (q *Queue[K]) Forget(key K) { q.limiter.Forget(key) }

// Delayed is how many keys are held back for a while.
func (q *Queue[K]) Delayed() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.delayed)
}

// GetBatch blocks until there is a key, and gives up to limit keys to the caller until Done or
// Return. It appends to keys what is there, and doesn't wait for more. It returns ErrShutDown when
// nothing waits any more in a queue that was shut down, and ctx's error when ctx ends.
func (q *Queue[K]) GetBatch(ctx context.Context, keys []K, limit int) ([]K, error) {
	for {
		if err := ctx.Err(); err != nil {
			q.signal() // the token may have been taken in the last round
			return keys, err
		}
		got, err := q.appendReady(keys, max(limit, 1))
		if err != nil || len(got) > len(keys) {
			return got, err
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}

// appendReady appends the first keys that wait.
func (q *Queue[K]) appendReady(keys []K, limit int) ([]K, error) {
	q.mu.Lock()
	defer q.unlock()
	if q.ready.len == 0 && q.down && len(q.delayed) == 0 {
		return keys, ErrShutDown
	}
	for range min(limit, q.ready.len) {
		e := q.ready.pop()
		e.queued, e.processing = false, true
		keys = append(keys, e.key)
	}
	return keys, nil
}

// Done ends a worker's hold on keys. Those that were added meanwhile wait again, at the end.
func (q *Queue[K]) Done(keys ...K) {
	if len(keys) == 0 {
		return
	}
	q.mu.Lock()
	for _, key := range keys {
		e := q.entries[key]
		if e == nil || !e.processing {
			continue
		}
		e.processing = false
		if e.again {
			e.again = false
			q.push(e)
		}
		q.release(e)
	}
	q.unlock()
}

// Return gives back keys that the worker did not get to: they wait again before all others, in the
// order given.
func (q *Queue[K]) Return(keys ...K) {
	if len(keys) == 0 {
		return
	}
	q.mu.Lock()
	for _, key := range slices.Backward(keys) {
		e := q.entries[key]
		if e == nil || !e.processing {
			continue
		}
		e.processing, e.again, e.queued = false, false, true
		q.ready.pushFront(e)
	}
	q.unlock()
}

// Flush hands out delayed keys at once, in the order they were due.
func (q *Queue[K]) Flush() {
	q.mu.Lock()
	q.flush()
	q.unlock()
}

// ShutDown takes no new keys from now on and hands out delayed ones at once. Workers still get
// waiting keys, and may add a key again that they could not finish; each sees ErrShutDown when it
// asks while nothing waits or is delayed.
func (q *Queue[K]) ShutDown() {
	q.mu.Lock()
	q.down = true
	q.flush()
	q.unlock()
}
