package publisher

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

// errBehind reports that an earlier item of the same object has no lane yet.
var errBehind = errors.New("an earlier event of the object has no lane yet")

// object identifies the items that must stay in order while the sink doesn't know their lane.
type object struct{ group, resource, namespace, name string }

func objectOf(e *event.Event) object {
	return object{e.Group, e.Resource, e.Namespace, e.Name}
}

// maxUnrouted and maxPerRoute are the parts of the capacity that unrouted items may hold: all of
// them a quarter, and those for one topic or stream a sixteenth. The rest is for items that can go.
// The sink's error identifies the topic.
const (
	maxUnrouted = 4
	maxPerRoute = 16
)

// unroutedItems are items whose lane the sink doesn't know yet, in their order per object.
// Publisher.mu guards all fields except now, count and broadcasts.
type unroutedItems struct {
	objects map[object]*objectQueue
	routes  map[string]*queueSize // by waiting.route
	total   queueSize
	fewer   chan struct{} // closed, and replaced, when there are fewer
	now     chan struct{} // a token: an item was added. Not guarded
	count   atomic.Int64  // len(objects), for those who look without the lock
	// broadcasts counts the waiting calls of Parts: their events are not added yet.
	broadcasts atomic.Int64
	// asked is the object whose first item the sink is being asked about; zero for none. cancel
	// ends that.
	asked  object
	cancel context.CancelCauseFunc
}

// objectQueue is the unrouted items of one object.
type objectQueue struct {
	lane    lane
	route   string    // why the first has no lane, which names where it goes
	refused time.Time // since when the broker refuses to name one, as in stall
}

func newUnrouted() unroutedItems {
	return unroutedItems{
		objects: map[object]*objectQueue{}, routes: map[string]*queueSize{},
		fewer: make(chan struct{}), now: make(chan struct{}, 1),
	}
}

// fitsLocked reports whether another item of a size and route fits in the parts of the capacity.
// The first item of a route always fits its part.
func (u *unroutedItems) fitsLocked(route string, size int, c *capacity) bool {
	fits := func(l queueSize, part int) bool {
		return l.items == 0 || part*(l.items+1) <= c.maxItems && part*(l.bytes+size) <= c.maxBytes
	}
	held := u.routes[route]
	return fits(u.total, maxUnrouted) && (held == nil || fits(*held, maxPerRoute))
}

func (u *unroutedItems) pushLocked(key object, route string, it *Item) {
	w := u.objects[key]
	if w == nil {
		w = &objectQueue{route: route}
		u.objects[key] = w
		u.count.Store(int64(len(u.objects)))
	}
	if u.routes[w.route] == nil {
		u.routes[w.route] = &queueSize{}
	}
	w.lane.push(it)
	u.total.add(1, it.size)
	u.routes[w.route].add(1, it.size)
}

// popLocked takes the first item of an object out.
func (u *unroutedItems) popLocked(key object) *Item {
	w := u.objects[key]
	it := w.lane.pop()
	u.total.add(-1, -it.size)
	if held := u.routes[w.route]; held.items == 1 {
		delete(u.routes, w.route)
	} else {
		held.add(-1, -it.size)
	}
	if w.lane.head == nil {
		delete(u.objects, key)
		u.count.Store(int64(len(u.objects)))
	}
	close(u.fewer)
	u.fewer = make(chan struct{})
	return it
}

// isUnrouted reports whether an earlier item of the same object has no lane yet. It takes no lock
// while the count is 0: the goroutine that adds the object's later items has raised the count.
func (p *Publisher) isUnrouted(it *Item) bool {
	if p.unrouted.count.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unrouted.objects[objectOf(it.Message.Event)] != nil
}

// keepUnrouted keeps an item, and with it the later ones of its object, until the sink knows its
// lane. It returns nil, or, when unrouted items hold their part of the capacity, a channel that is
// closed when they hold less.
func (p *Publisher) keepUnrouted(it *Item, err error) (fewer <-chan struct{}) {
	if !errors.Is(err, errBehind) {
		p.routeFailed(err)
		p.warnings.route.Warn(p.cfg.Log, "can't find out where an event goes; its object waits",
			"subject", it.Message.Event.Subject, "err", err)
	}
	key := objectOf(it.Message.Event)
	p.mu.Lock()
	defer p.mu.Unlock()
	route := err.Error()
	if w := p.unrouted.objects[key]; w != nil {
		route = w.route
	}
	if !p.unrouted.fitsLocked(route, it.size, p.capacity) {
		return p.unrouted.fewer
	}
	p.ages.push(it)
	p.unrouted.pushLocked(key, route, it)
	if !errors.Is(err, errBehind) {
		p.refuseLocked(key, err)
	}
	signal(p.unrouted.now)
	return nil
}

// refuseLocked records that the sink has not named the lane of an object.
func (p *Publisher) refuseLocked(key object, err error) {
	stalled := &p.metrics.counts.stalled
	stalled.mu.Lock()
	defer stalled.mu.Unlock()
	if w := p.unrouted.objects[key]; w != nil {
		w.refused = stalled.refusedLocked(w.refused, err)
	}
}

// signal leaves a token in a channel with one slot. It never blocks.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
