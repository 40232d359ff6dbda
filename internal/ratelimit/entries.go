package ratelimit

import (
	"container/heap"
	"time"
)

// entry is the queue's state of a key. It lives while the key waits, is delayed or is with a
// worker, and is reused afterwards, so that a busy queue allocates nothing.
type entry[K comparable] struct {
	key        K
	next       *entry[K] // in the ready or in the free list
	due        time.Time // while it is in the heap
	place      int       // in the heap; -1 when it is not there
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
	e.key, e.place = key, -1
	q.entries[key] = e
	return e
}

// release forgets a key that neither waits, is delayed nor is with a worker.
func (q *Queue[K]) release(e *entry[K]) {
	if e.queued || e.processing || e.place >= 0 {
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

// delay keeps a key back until due, unless it is due earlier already.
func (q *Queue[K]) delay(e *entry[K], due time.Time) {
	switch {
	case e.place < 0:
		e.due = due
		heap.Push(&q.delayed, e)
	case due.Before(e.due):
		e.due = due
		heap.Fix(&q.delayed, e.place)
	default:
		return
	}
	if e.place == 0 {
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

// unlock ends a critical section, and then notifies those who wait for its changes.
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
	d[i].place, d[j].place = i, j
}

func (d *delays[K]) Push(x any) {
	e := x.(*entry[K])
	e.place = len(*d)
	*d = append(*d, e)
}

func (d *delays[K]) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.place = -1
	return e
}
