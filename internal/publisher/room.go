package publisher

import (
	"context"
	"slices"
	"sync"
)

// room bounds what is queued, in items and bytes. Those that wait for it are served in their order, so an adder with
// small items can't starve one with a large item.
type room struct {
	maxItems, maxBytes int
	closed             <-chan struct{} // ends all waiting

	mu      sync.Mutex
	items   int             // guarded by mu
	bytes   int             // guarded by mu
	waiters []*waiter       // guarded by mu
	idlers  []chan struct{} // guarded by mu: closed when nothing is queued
}

// waiter waits until at least the first of its items fits.
type waiter struct {
	items   []*Item
	granted int           // guarded by room.mu; how many were let in
	ready   chan struct{} // closed after granted was set
}

// take blocks until at least the first of the items fits, and says how many of them were let in.
func (r *room) take(ctx context.Context, items []*Item) (int, error) {
	r.mu.Lock()
	if len(r.waiters) == 0 {
		if n := r.admitLocked(items); n > 0 {
			r.mu.Unlock()
			return n, nil
		}
	}
	w := &waiter{items: items, ready: make(chan struct{})}
	r.waiters = append(r.waiters, w)
	r.mu.Unlock()

	select {
	case <-w.ready:
		return w.granted, nil
	case <-ctx.Done():
		return r.giveUp(w, context.Cause(ctx))
	case <-r.closed:
		return r.giveUp(w, ErrStopped)
	}
}

// giveUp ends a wait, unless it was granted in the meantime.
func (r *room) giveUp(w *waiter, err error) (int, error) {
	r.mu.Lock()
	if w.granted > 0 {
		r.mu.Unlock()
		return w.granted, nil
	}
	r.waiters = slices.DeleteFunc(r.waiters, func(other *waiter) bool { return other == w })
	granted := r.grantLocked() // those behind it may want less
	r.mu.Unlock()
	wake(granted)
	return 0, err
}

// release makes room.
func (r *room) release(items, bytes int) {
	r.mu.Lock()
	r.items -= items
	r.bytes -= bytes
	granted := r.grantLocked()
	var idlers []chan struct{}
	if r.items == 0 {
		idlers, r.idlers = r.idlers, nil
	}
	r.mu.Unlock()
	wake(granted)
	for _, idle := range idlers {
		close(idle)
	}
}

// admitLocked lets in as many of the items as fit. An item larger than the bound is let in alone.
func (r *room) admitLocked(items []*Item) int {
	for i, it := range items {
		full := r.items >= r.maxItems || r.bytes+it.size > r.maxBytes
		if full && (r.items > 0 || it.size <= r.maxBytes) {
			return i
		}
		r.items++
		r.bytes += it.size
	}
	return len(items)
}

// grantLocked lets in those who wait, in their order.
func (r *room) grantLocked() (granted []*waiter) {
	for len(r.waiters) > 0 {
		w := r.waiters[0]
		if w.granted = r.admitLocked(w.items); w.granted == 0 {
			break
		}
		r.waiters = slices.Delete(r.waiters, 0, 1)
		granted = append(granted, w)
	}
	return granted
}

func wake(granted []*waiter) {
	for _, w := range granted {
		close(w.ready)
	}
}

// idle is closed as soon as nothing is queued.
func (r *room) idle() <-chan struct{} {
	idle := make(chan struct{})
	r.mu.Lock()
	empty := r.items == 0
	if !empty {
		r.idlers = append(r.idlers, idle)
	}
	r.mu.Unlock()
	if empty {
		close(idle)
	}
	return idle
}

// load is what is queued.
func (r *room) load() (items, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.items, r.bytes
}
