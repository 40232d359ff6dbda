package ratelimit

import (
	"container/heap"
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
	// wake holds a token while there may be a key for a waiting worker. A worker that takes it
	// passes it on when keys are left, so one slot wakes any number of workers in sequence.
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

// Add queues keys. A key that waits already is not added again; a key that is with a worker comes
// again after Done. A queue that was shut down ignores keys it doesn't know.
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

// AddRateLimited adds a key that failed, after the limiter's delay. Call Forget once the key
// succeeded.
func (q *Queue[K]) AddRateLimited(key K) { q.AddAfter(key, q.limiter.When(key)) }

// Forget clears the failures of a key. A key in the queue stays there.
func (q *Queue[K]) Forget(key K) { q.limiter.Forget(key) }

// Delayed is how many keys are held back for a while.
func (q *Queue[K]) Delayed() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.delayed)
}

// GetBatch blocks until a key waits, and hands up to limit keys to the caller until Done or Return.
// It appends them to keys, and doesn't wait for more. It returns ErrShutDown when no key is left in
// a queue that was shut down, and ctx's error when ctx ends.
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

// Done ends a worker's hold on keys. Keys that were added meanwhile wait again, at the end.
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

// ShutDown refuses new keys from now on and hands out delayed ones at once. Workers still get
// waiting keys, and may add a key again that they could not finish. GetBatch returns ErrShutDown
// while no key waits or is delayed.
func (q *Queue[K]) ShutDown() {
	q.mu.Lock()
	q.down = true
	q.flush()
	q.unlock()
}

// entry is the queue's state of a key. It lives while the key waits, is delayed or is with a
// worker, and is reused afterwards, so that a busy queue allocates nothing.
type entry[K comparable] struct {
	key        K
	next       *entry[K] // in the ready or in the free list
	due        time.Time // while it is in the heap
	index      int       // in the heap; -1 when it is not there
	queued     bool
	processing bool
	again      bool // added while processing
}

// maxFree bounds the entries kept for reuse: a burst of keys returns its memory.
const maxFree = 4096

// entry finds or makes the entry of a key; nil for a new key in a queue that is shut down.
func (q *Queue[K]) entry(key K) *entry[K] {
	e := q.entries[key]
	if e != nil || q.down {
		return e
	}
	if e = q.free.pop(); e == nil {
		e = &entry[K]{}
	}
	e.key, e.index = key, -1
	q.entries[key] = e
	return e
}

// release forgets a key that is not queued, delayed or with a worker.
func (q *Queue[K]) release(e *entry[K]) {
	if e.queued || e.processing || e.index >= 0 {
		return
	}
	delete(q.entries, e.key)
	*e = entry[K]{} // the queue must not keep the key alive
	if q.free.len < maxFree {
		q.free.push(e)
	}
}

// push makes a key wait for a worker, or for the worker that has it.
func (q *Queue[K]) push(e *entry[K]) {
	switch {
	case e.processing:
		e.again = true
	case !e.queued:
		e.queued = true
		q.ready.push(e)
	}
}

// delay holds a key back until due, unless it is due earlier already.
func (q *Queue[K]) delay(e *entry[K], due time.Time) {
	switch {
	case e.index < 0:
		e.due = due
		heap.Push(&q.delayed, e)
	case due.Before(e.due):
		e.due = due
		heap.Fix(&q.delayed, e.index)
	default:
		return
	}
	if e.index == 0 {
		q.arm()
	}
}

// arm sets the timer to the first delayed key.
func (q *Queue[K]) arm() {
	wait := time.Until(q.delayed[0].due)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.fire)
	} else {
		q.timer.Reset(wait)
	}
}

// fire hands out the keys that are due.
func (q *Queue[K]) fire() {
	q.mu.Lock()
	for now := time.Now(); len(q.delayed) > 0 && !q.delayed[0].due.After(now); {
		q.push(heap.Pop(&q.delayed).(*entry[K]))
	}
	if len(q.delayed) > 0 {
		q.arm()
	}
	q.unlock()
}

// flush hands out all delayed keys.
func (q *Queue[K]) flush() {
	if q.timer != nil {
		q.timer.Stop()
	}
	for len(q.delayed) > 0 {
		q.push(heap.Pop(&q.delayed).(*entry[K]))
	}
}

// unlock ends a critical section, and then wakes a worker when there is something for it.
func (q *Queue[K]) unlock() {
	wake := q.ready.len > 0 || q.down && len(q.delayed) == 0
	q.mu.Unlock()
	if wake {
		q.signal()
	}
}

// signal leaves a token for a waiting worker. It never blocks.
func (q *Queue[K]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// fifo is a list of entries; the zero value is empty.
type fifo[K comparable] struct {
	head, tail *entry[K]
	len        int
}

func (f *fifo[K]) push(e *entry[K]) {
	if f.tail == nil {
		f.head = e
	} else {
		f.tail.next = e
	}
	f.tail = e
	f.len++
}

func (f *fifo[K]) pushFront(e *entry[K]) {
	e.next = f.head
	f.head = e
	if f.tail == nil {
		f.tail = e
	}
	f.len++
}

// pop takes the first entry; nil when there is none.
func (f *fifo[K]) pop() *entry[K] {
	e := f.head
	if e == nil {
		return nil
	}
	f.head, e.next = e.next, nil
	if f.head == nil {
		f.tail = nil
	}
	f.len--
	return e
}

// delays is a heap of entries, the first due on top.
type delays[K comparable] []*entry[K]

func (d delays[K]) Len() int           { return len(d) }
func (d delays[K]) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d delays[K]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *delays[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*d)
	*d = append(*d, e)
}

func (d *delays[K]) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.index = -1
	return e
}
