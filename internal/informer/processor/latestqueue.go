package processor

import (
	"iter"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// latestQueue is the pending events of a listener that is sent the newest states only, as
// client-go's workqueue has it: of each object the events to come, and at most one that the
// publisher has. It holds positions in the log and no objects, so large objects cost it nothing. It
// is guarded by the listener's lock.
type latestQueue struct {
	// max bounds the pending events. Beyond that the log is read no further ahead.
	max int
	// keepFirst keeps the first of the changes that collapse, since its old object is that of the
	// event.
	keepFirst bool
	// barrier is the last entry about all objects that was read while events before it were
	// pending. They do not collapse with changes behind it: it may say that they are there.
	barrier changelog.Position

	objects map[resource.Key]*pendingObject
	// with something to send, and nothing with the publisher; first come, first served
	ready   []*pendingObject
	count   int  // of pending events, of all objects
	wasFull bool // max was reached, and half of it not since
}

// pendingObject has the pending events of one object.
type pendingObject struct {
	key    resource.Key
	events []pendingEvent // in their order
	busy   bool           // an event is with the publisher
}

// pendingEvent is one event to come: the change at last stands for all changes from first on. The
// changes between the two are settled.
type pendingEvent struct {
	object *pendingObject
	// the same when nothing has collapsed, or nothing of the first is needed
	first, last changelog.Position
	op          event.Op
	uid         string
	// the listener was sent nothing of this object: it is an Added, whatever the last change is
	added    bool
	observed time.Time
	tried    bool // the sink may have it: it is sent as it was
}

func newLatestQueue(max int, keepFirst bool) *latestQueue {
	return &latestQueue{max: max, keepFirst: keepFirst, objects: map[resource.Key]*pendingObject{}}
}

// queue adds change h and returns the positions that need not be sent any more, perhaps h's own. A
// change replaces the pending one of its object. Both stay when the pending one is a delete, since
// consumers must see the end of an object before another takes its name; when it is of another uid;
// when one is a quarantine; when the sink may have the pending one already; and when a barrier is
// between the two. A Sync gives way to any other change.
func (q *latestQueue) queue(h *changelog.Header) (needless []changelog.Position) {
	o := q.object(h.Key)
	if len(o.events) == 0 {
		q.push(o, h)
		return nil
	}
	last := &o.events[len(o.events)-1]
	switch {
	case h.Kind == changelog.OfQuarantined || last.op == event.Quarantined, last.tried && !h.Tried,
		last.last < q.barrier:
		q.push(o, h)
	case last.op == event.Synced:
		needless = append(needless, last.last)
		*last = newPendingEvent(o, h, last.observed)
	case h.Op == event.Synced && last.op != event.Deleted:
		needless = append(needless, h.Position)
	case last.op == event.Deleted || last.uid != h.UID:
		q.push(o, h)
	default:
		needless = q.collapse(last, h)
	}
	return needless
}

// collapse replaces an earlier change of an object by a later one.
func (q *latestQueue) collapse(
	last *pendingEvent, h *changelog.Header,
) (needless []changelog.Position) {
	if last.first != last.last {
		needless = append(needless, last.last)
	}
	before := *last
	*last = newPendingEvent(before.object, h, before.observed)
	if h.Op != event.Deleted && (before.added || q.keepFirst) {
		last.first, last.added = before.first, last.added || before.added
		return needless
	}
	return append(needless, before.first)
}

// object finds the pending events of an object, or makes them.
func (q *latestQueue) object(key resource.Key) *pendingObject {
	o := q.objects[key]
	if o == nil {
		key = resource.Key(strings.Clone(string(key))) // it may share an object's memory
		o = &pendingObject{key: key}
		q.objects[key] = o
	}
	return o
}

func newPendingEvent(o *pendingObject, h *changelog.Header, observed time.Time) pendingEvent {
	return pendingEvent{
		object: o, first: h.Position, last: h.Position, op: h.Op, uid: strings.Clone(h.UID),
		added: h.Op == event.Added, observed: observed, tried: h.Tried,
	}
}

func (q *latestQueue) push(o *pendingObject, h *changelog.Header) {
	if len(o.events) == 0 && !o.busy {
		q.ready = append(q.ready, o)
	}
	o.events = append(o.events, newPendingEvent(o, h, h.Observed))
	q.count++
}

// full reports whether no more is to be added: from when max is reached until half of it is sent,
// since headers that are read and not added are read again.
func (q *latestQueue) full() bool {
	q.wasFull = q.count >= q.max || q.wasFull && q.count > q.max/2
	return q.wasFull
}

// pop removes and returns up to n events, of different objects.
func (q *latestQueue) pop(n int) []pendingEvent {
	n = min(n, len(q.ready))
	taken := make([]pendingEvent, n)
	for i, o := range q.ready[:n] {
		taken[i] = o.events[0]
		o.events, o.busy = o.events[1:], true
		q.ready[i] = nil
	}
	q.count -= n
	if q.ready = q.ready[n:]; len(q.ready) == 0 {
		q.ready = nil
	}
	return taken
}

// done records that the event that pop returned of an object is settled.
func (q *latestQueue) done(o *pendingObject) {
	o.busy = false
	if len(o.events) > 0 {
		q.ready = append(q.ready, o)
	} else {
		delete(q.objects, o.key)
	}
}

// all yields the events to come, in no order.
func (q *latestQueue) all() iter.Seq[*pendingEvent] {
	return func(yield func(*pendingEvent) bool) {
		for _, o := range q.objects {
			for i := range o.events {
				if !yield(&o.events[i]) {
					return
				}
			}
		}
	}
}
