package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spare is for how many more settlers a part is reserved, beside those that have added items.
const spare = 4

// forgetSettler is after how long nothing is reserved any more for a settler that holds nothing.
const forgetSettler = 10 * time.Minute

// capacity bounds the queued items, in number and bytes. One half is reserved in equal parts for
// the settlers, one for each informer: a stuck informer leaves the others their parts. Any settler
// may use the rest.
//
// Waiting adders are served in their order, so an adder with small items can't starve one with a
// large item. An adder that would need what is reserved for others is passed over.
type capacity struct {
	maxItems, maxBytes int
	closed             <-chan struct{} // ends all waiting

	mu       sync.Mutex
	total    queueSize                 // guarded by mu
	settlers map[Settler]*settlerShare // guarded by mu
	part     queueSize                 // guarded by mu: reserved for each settler
	reserved queueSize                 // guarded by mu: what of that is not held
	waiters  []*waiter                 // guarded by mu
	idlers   []chan struct{}           // guarded by mu: closed when nothing is queued
}

// settlerShare is what one settler holds.
type settlerShare struct {
	queueSize
	idle    time.Time     // since when it holds nothing
	emptied chan struct{} // closed when it holds nothing; nil while nobody waits for that
}

func newCapacity(items, bytes int, closed <-chan struct{}) *capacity {
	c := &capacity{maxItems: items, maxBytes: bytes, closed: closed, settlers: map[Settler]*settlerShare{}}
	c.divideLocked()
	return c
}

// queueSize is a number of items and their bytes.
type queueSize struct{ items, bytes int }

func (l *queueSize) add(items, bytes int) {
	l.items += items
	l.bytes += bytes
}

// waiter waits until at least the first of its items fits.
type waiter struct {
	items   []*Item       // of one settler
	granted int           // guarded by capacity.mu: how many were admitted
	ready   chan struct{} // closed after granted was set
}

// acquire blocks until at least the first of the items fits, and returns how many were admitted.
// These are of one settler.
func (c *capacity) acquire(ctx context.Context, items []*Item) (int, error) {
	items = sameSettler(items)
	c.mu.Lock()
	if len(c.waiters) == 0 {
		if n, _ := c.admitLocked(items); n > 0 {
			c.mu.Unlock()
			return n, nil
		}
	}
	w := &waiter{items: items, ready: make(chan struct{})}
	c.waiters = append(c.waiters, w)
	granted := c.grantLocked() // those before it may be kept out
	c.mu.Unlock()
	wake(granted)

	select {
	case <-w.ready:
		return w.granted, nil
	case <-ctx.Done():
		return c.giveUp(w, context.Cause(ctx))
	case <-c.closed:
		return c.giveUp(w, ErrStopped)
	}
}

// tryAcquire admits all of the items, which are of one settler, or none.
func (c *capacity) tryAcquire(items []*Item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiters) > 0 {
		return false
	}
	n, _ := c.admitLocked(items)
	if n < len(items) {
		c.holdLocked(c.settlers[items[0].Settler], -n, -sizeOf(items[:n]))
	}
	return n == len(items)
}

// sameSettler returns the first items, as far as all have the settler of the first.
func sameSettler(items []*Item) []*Item {
	n := slices.IndexFunc(items, func(it *Item) bool { return it.Settler != items[0].Settler })
	if n < 0 {
		return items
	}
	return items[:n]
}

// giveUp ends a wait, unless the items were admitted meanwhile.
func (c *capacity) giveUp(w *waiter, err error) (int, error) {
	c.mu.Lock()
	if w.granted > 0 {
		c.mu.Unlock()
		return w.granted, nil
	}
	c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	granted := c.grantLocked() // those behind it may want less
	c.mu.Unlock()
	wake(granted)
	return 0, err
}

// release frees the capacity of items of one settler.
func (c *capacity) release(s Settler, items, bytes int) {
	c.mu.Lock()
	mine := c.settlers[s]
	if c.holdLocked(mine, -items, -bytes); mine.items == 0 {
		mine.idle = time.Now()
		if mine.emptied != nil {
			close(mine.emptied)
			mine.emptied = nil
		}
	}
	granted := c.grantLocked()
	var idlers []chan struct{}
	if c.total.items == 0 {
		idlers, c.idlers = c.idlers, nil
	}
	c.mu.Unlock()
	wake(granted)
	for _, idle := range idlers {
		close(idle)
	}
}

// giveBack frees the capacity of items that were admitted and not taken.
func (p *Publisher) giveBack(items []*Item) {
	for len(items) > 0 {
		mine := sameSettler(items)
		p.capacity.release(mine[0].Settler, len(mine), sizeOf(mine))
		items = items[len(mine):]
	}
}

// holdLocked changes how much a settler holds, and how much is reserved for it.
func (c *capacity) holdLocked(h *settlerShare, items, bytes int) {
	before := c.lackLocked(h.queueSize)
	h.add(items, bytes)
	c.total.add(items, bytes)
	after := c.lackLocked(h.queueSize)
	c.reserved.add(after.items-before.items, after.bytes-before.bytes)
}

// lackLocked returns how much of its part a settler does not hold.
func (c *capacity) lackLocked(held queueSize) queueSize {
	return queueSize{max(0, c.part.items-held.items), max(0, c.part.bytes-held.bytes)}
}

// settlerLocked returns the share of a settler. A new one changes the parts of all.
func (c *capacity) settlerLocked(s Settler) *settlerShare {
	if h := c.settlers[s]; h != nil {
		return h
	}
	maps.DeleteFunc(c.settlers, func(_ Settler, h *settlerShare) bool {
		return h.items == 0 && time.Since(h.idle) > forgetSettler
	})
	h := &settlerShare{idle: time.Now()}
	c.settlers[s] = h
	c.divideLocked()
	return h
}

// divideLocked divides one half among the settlers, and those that may come.
func (c *capacity) divideLocked() {
	n := len(c.settlers) + spare
	c.part = queueSize{c.maxItems / 2 / n, c.maxBytes / 2 / n}
	c.reserved = queueSize{spare * c.part.items, spare * c.part.bytes}
	for _, h := range c.settlers {
		lack := c.lackLocked(h.queueSize)
		c.reserved.add(lack.items, lack.bytes)
	}
}

// grantLocked admits items of the waiters, in their order.
func (c *capacity) grantLocked() (granted []*waiter) {
	rest := c.waiters[:0]
	for i, w := range c.waiters {
		var full bool
		if w.granted, full = c.admitLocked(w.items); w.granted > 0 {
			granted = append(granted, w)
			continue
		}
		if full {
			rest = append(rest, c.waiters[i:]...)
			break
		}
		rest = append(rest, w) // what is free is reserved for others
	}
	clear(c.waiters[len(rest):])
	c.waiters = rest
	return granted
}

// admitLocked admits as many of the items of one settler as fit. full reports whether the capacity
// has ended that, and not the parts reserved for others. An item larger than the capacity is
// admitted alone. A settler that holds nothing may have one item, even from the reserved parts.
func (c *capacity) admitLocked(items []*Item) (n int, full bool) {
	mine := c.settlerLocked(items[0].Settler)
	for _, it := range items {
		freeItems, freeBytes := c.maxItems-c.total.items-1, c.maxBytes-c.total.bytes-it.size
		full = freeItems < 0 || freeBytes < 0
		if full && (c.total.items > 0 || it.size <= c.maxBytes) {
			return n, true
		}
		lack := c.lackLocked(mine.queueSize)
		kept := freeItems < c.reserved.items-lack.items || freeBytes < c.reserved.bytes-lack.bytes
		within := mine.items < c.part.items && mine.bytes+it.size <= c.part.bytes
		if kept && !within && mine.items > 0 {
			return n, false
		}
		n++
		c.holdLocked(mine, 1, it.size)
	}
	return n, false
}

// emptied returns a channel that is closed as soon as a settler holds nothing. Only one caller
// waits for a settler.
func (c *capacity) emptied(s Settler) <-chan struct{} {
	emptied := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.settlers[s]; h != nil && h.items > 0 {
		h.emptied = emptied
	} else {
		close(emptied)
	}
	return emptied
}

// forget removes the part of a settler, which holds nothing.
func (c *capacity) forget(s Settler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.settlers, s)
	c.divideLocked()
}

func wake(granted []*waiter) {
	for _, w := range granted {
		close(w.ready)
	}
}

// idle returns a channel that is closed as soon as nothing is queued.
func (c *capacity) idle() <-chan struct{} {
	idle := make(chan struct{})
	c.mu.Lock()
	empty := c.total.items == 0
	if !empty {
		c.idlers = append(c.idlers, idle)
	}
	c.mu.Unlock()
	if empty {
		close(idle)
	}
	return idle
}

// load returns the number of queued items and their bytes.
func (c *capacity) load() (items, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.items, c.total.bytes
}

// ErrStopped is returned by Add and Drain when Run has ended.
var ErrStopped = errors.New("publisher has stopped")

// sinkUsers counts the callers of the sink outside Run, and admits them until Run is about to close
// the sink.
type sinkUsers struct {
	running atomic.Bool   // Run was called
	closed  chan struct{} // closed when no caller is admitted any more
	left    chan struct{} // closed when the last caller has left after that

	mu      sync.Mutex
	callers int  // guarded by mu: those who are inside
	closing bool // guarded by mu
}

func newSinkUsers() sinkUsers {
	return sinkUsers{closed: make(chan struct{}), left: make(chan struct{})}
}

// enter admits a caller that is about to use the sink; false when Run is about to close it.
func (d *sinkUsers) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	d.callers++
	return true
}

func (d *sinkUsers) leave() {
	d.mu.Lock()
	d.callers--
	last := d.closing && d.callers == 0
	d.mu.Unlock()
	if last {
		close(d.left)
	}
}

// close admits no further caller, and waits for the admitted ones: at most for one look-up each.
func (d *sinkUsers) close() {
	d.mu.Lock()
	d.closing = true
	none := d.callers == 0
	d.mu.Unlock()
	close(d.closed)
	if !none {
		<-d.left
	}
}
