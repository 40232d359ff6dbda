package processor

import (
	"context"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// inflightEvent is an event that the publisher has, with its entry.
type inflightEvent struct {
	item   publisher.Item
	event  event.Event
	entry  *changelog.Entry
	first  *changelog.Entry // an earlier one that is acked with the entry; nil for none
	object *pendingObject   // of the entry, with Latest
	copies *eventCopies     // that this is one of; nil for the only one
}

// eventCopies counts the copies of an event about all objects. Their entry is acked when all are
// settled.
type eventCopies struct {
	left  int
	holds holds // of those that are settled
}

// holds are the position holds of several events, by MessageID.
type holds map[string]*publisher.PositionHold

func (hs holds) Release() {
	for _, h := range hs {
		h.Release()
	}
}

// settle counts a settled copy, and takes over its hold.
func (of *eventCopies) settle(p *inflightEvent) {
	of.left--
	if p.item.Hold != nil {
		of.holds[p.event.MessageID()] = p.item.Hold
	}
}

// acquire waits for room in the window and acquires inflights for the first of the entries, at
// least one.
func (l *Listener) acquire(ctx context.Context, entries []*changelog.Entry) ([]*inflightEvent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hasRoom := func() bool { return l.roomLocked() > 0 }
	if err := ratelimit.WaitCond(ctx, l.cond, hasRoom); err != nil {
		return nil, err
	}
	return l.acquireLocked(entries), nil
}

// tryAcquire acquires an inflight for each entry, or none where the window has no room for all.
func (l *Listener) tryAcquire(entries []*changelog.Entry) []*inflightEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.roomLocked() < len(entries) {
		return nil
	}
	return l.acquireLocked(entries)
}

// roomLocked returns how many more events the window has room for.
func (l *Listener) roomLocked() int { return l.cfg.Window - len(l.inflights) + len(l.free) }

// acquireLocked acquires inflights for the first of the entries, as far as the window has room.
func (l *Listener) acquireLocked(entries []*changelog.Entry) []*inflightEvent {
	for len(l.free) < len(entries) && len(l.inflights) < l.cfg.Window {
		p := &inflightEvent{}
		p.item.Settler, p.item.Seq = l, uint64(len(l.inflights))
		l.inflights = append(l.inflights, p)
		l.free = append(l.free, p)
	}
	n := min(len(entries), len(l.free))
	taken := append([]*inflightEvent{}, l.free[len(l.free)-n:]...)
	l.free = l.free[:len(l.free)-n]
	for i, p := range taken {
		p.entry = entries[i]
	}
	return taken
}

// Settle implements publisher.Settler: it acks the entries of the settled items.
func (l *Listener) Settle(items []*publisher.Item) {
	l.cursor.Ack(l.acks(items))
	l.release(items)
	if l.queue != nil || l.barriers.hasPostponed.Load() {
		l.wake()
	}
}

// wake makes the listener check again.
func (l *Listener) wake() {
	l.wakeUps.Add(1)
	l.cursor.Wake()
}

func (l *Listener) acks(items []*publisher.Item) []changelog.Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := make([]changelog.Ack, 0, len(items))
	for _, it := range items {
		p := l.inflights[it.Seq]
		ack := changelog.Ack{At: p.entry.Position}
		switch of := p.copies; {
		case of != nil:
			if of.settle(p); of.left > 0 {
				continue
			}
			ack.Hold = of.holds // also where this copy has none, as one that was read back
		case it.Hold != nil:
			ack.Hold = it.Hold
		}
		if p.first != nil {
			acks = append(acks, changelog.Ack{At: p.first.Position})
		}
		if p.entry == l.barriers.ahead {
			l.barriers.settled = append(l.barriers.settled, ack)
			continue
		}
		acks = append(acks, ack)
	}
	return acks
}

// release makes the inflights of items free, and new: what one event has left, such as the Exists
// of its message, must not go with the next. When all are free their memory is given up: most
// listeners are idle most of the time, and a first list leaves thousands.
func (l *Listener) release(items []*publisher.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		p := l.inflights[it.Seq]
		if p.object != nil {
			l.queue.done(p.object)
		}
		*p = inflightEvent{item: publisher.Item{Settler: l, Seq: it.Seq}}
		l.free = append(l.free, p)
	}
	if len(l.free) == len(l.inflights) {
		l.inflights, l.free = nil, nil
	}
	l.cond.Broadcast()
}

// waitEmpty waits until the publisher has nothing of this listener.
func (l *Listener) waitEmpty(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ratelimit.WaitCond(ctx, l.cond, func() bool { return len(l.free) == len(l.inflights) })
}

// waitSettled waits until the publisher has nothing of an entry.
func (l *Listener) waitSettled(ctx context.Context, e *changelog.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ratelimit.WaitCond(ctx, l.cond, func() bool {
		return !slices.ContainsFunc(l.inflights, func(p *inflightEvent) bool { return p.entry == e })
	})
}

// stallCheck is how often a listener that waits looks whether all that it waits for is stalled.
const stallCheck = time.Second

// waitStalled waits until the publisher has nothing of this listener but stalled events. It reports
// whether there are such, or events that wait for them here.
func (l *Listener) waitStalled(ctx context.Context) (stalled bool, err error) {
	for {
		look, cancel := context.WithTimeout(ctx, stallCheck)
		err := l.waitEmpty(look)
		cancel()
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err == nil, l.onlyStalled():
			return !l.idle(), nil
		}
	}
}

// onlyStalled reports whether the publisher has nothing of this listener but stalled events.
func (l *Listener) onlyStalled() bool {
	inFlight := l.inFlight() // before the question: those that settle meanwhile are counted here
	return inFlight == 0 || l.stalled() >= inFlight
}

// stalled returns how many events of this listener are stalled.
func (l *Listener) stalled() int {
	if p, ok := l.cfg.Publisher.(StallReporter); ok {
		return p.Stalled(l)
	}
	return 0
}

// idle reports whether nothing is queued, and the publisher has nothing of this listener.
func (l *Listener) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (l.queue == nil || l.queue.count == 0) && len(l.free) == len(l.inflights)
}

func (l *Listener) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inflights) - len(l.free)
}

// readSize is how many changes a listener takes from the log at once.
const readSize = 256
