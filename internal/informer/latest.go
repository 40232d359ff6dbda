package informer

import (
	"context"
	"fmt"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
)

// A listener with Latest reads the log ahead of what it sends, in memory and on disk, as far as it goes: up to the next event about the
// informer, so that what such an event says is true, and up to Ahead events to come. Of each object at most one event is with the publisher; of what
// came since, only the newest is sent. What that makes needless is settled at once, but for the first of the changes of an object that the
// listener was sent nothing of: it is settled with the event, so that after a crash the event is an Added again; and for the first of those
// whose old object is needed, for the same reason. It holds back the state of those behind it (order), so a replay begins there.

// ahead says why reading ahead has stopped.
type ahead int

const (
	atEnd     ahead = iota // of what there is
	atBound                // enough waits
	atBarrier              // an event about all objects is next
	atClose                // nothing will come
)

// runLatest is run for a listener that is sent the newest states only.
func (l *listener) runLatest(ctx context.Context) error {
	items := make([]*publisher.Item, 0, readSize)
	for {
		settled := l.settled.Load()
		where, err := l.readAhead(ctx)
		if err != nil {
			return err
		}
		sent, err := l.sendReady(ctx, items)
		if err != nil {
			return err
		}
		switch {
		case sent:
		case where == atClose && l.idle():
			return nil
		case where == atBarrier && l.idle():
			err = l.passBarrier(ctx, items)
		default:
			err = l.awaitMore(ctx, where, settled)
		}
		if err != nil {
			return err
		}
	}
}

// readAhead notes what there is in the log now, and settles what that makes needless.
func (l *listener) readAhead(ctx context.Context) (ahead, error) {
	end, closed := l.informer.log.end()
	for {
		where, err := l.readBacklog()
		if err != nil || where != atEnd {
			return where, err
		}
		next := l.next()
		if next >= end {
			if closed {
				where = atClose
			}
			return where, nil
		}
		if l.full() {
			return atBound, nil
		}
		found, next, err := l.informer.log.sight(next, l.bit)
		if err != nil {
			return 0, err
		}
		if where = l.note(found, next); where != atEnd {
			return where, nil
		}
	}
}

// readBacklog notes what a run before has left.
func (l *listener) readBacklog() (ahead, error) {
	if len(l.leftover) == 0 {
		return atEnd, nil
	}
	where, n, needless := atEnd, 0, []uint64(nil)
	l.mu.Lock()
	for ; n < len(l.leftover); n++ {
		s := &l.leftover[n]
		if where = l.stopsAtLocked(s); where != atEnd {
			break
		}
		needless = append(needless, l.levels.add(s)...)
		l.cursor.caughtUp(s.position)
	}
	l.mu.Unlock()
	l.leftover = l.leftover[n:]
	l.settleNeedless(needless)
	return where, nil
}

// note notes what was found; next is behind it. From then on it is pending.
func (l *listener) note(found []sighting, next uint64) ahead {
	where, needless := atEnd, []uint64(nil)
	l.mu.Lock()
	for i := range found {
		s := &found[i]
		if where = l.stopsAtLocked(s); where != atEnd {
			next = s.position
			break
		}
		needless = append(needless, l.levels.add(s)...)
	}
	l.cursor.next = max(l.cursor.next, next)
	l.mu.Unlock()
	l.settleNeedless(needless)
	return where
}

func (l *listener) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.levels.full()
}

func (l *listener) stopsAtLocked(s *sighting) ahead {
	switch {
	case s.kind.ofAll(s.key):
		return atBarrier
	case l.levels.full():
		return atBound
	}
	return atEnd
}

// settleNeedless settles changes that this listener will not be sent. Those that are on disk only are settled by the cursor's passing them.
func (l *listener) settleNeedless(positions []uint64) {
	if len(positions) == 0 {
		return
	}
	l.informer.metrics.collapsed.WithLabelValues(l.cfg.Name).Add(float64(len(positions)))
	changes := l.informer.log.inMemory(positions)
	l.informer.settle(func() []*change {
		var done []*change
		for _, c := range changes {
			if c.waiting.Add(-1) == 0 {
				done = append(done, c)
			}
		}
		return done
	})
}

// Demander is a Publisher that says how many items are of use to it now: *publisher.Publisher.
type Demander interface {
	Demand() (items int, changed <-chan struct{})
}

// demand is how many more events are of use to the publisher. What it has is sent as it is, so while the
// sink is paused or unavailable the newest states are kept back. When the answer may have changed, the
// log's waiters are woken.
func (l *listener) demand(ctx context.Context) int {
	d, ok := l.cfg.Publisher.(Demander)
	if !ok {
		return readSize
	}
	items, changed := d.Demand()
	if changed != nil && items < readSize && l.awaiting.CompareAndSwap(false, true) {
		go func() {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			l.awaiting.Store(false)
			l.settled.Add(1)
			l.informer.log.wake()
		}()
	}
	return items - min(items, l.inFlight())
}

// sendReady sends what is ready, as far as the window and the demand go, and says whether there was
// anything.
func (l *listener) sendReady(ctx context.Context, items []*publisher.Item) (bool, error) {
	most := min(readSize, l.demand(ctx))
	l.mu.Lock()
	l.sending = l.levels.take(min(most, l.cfg.Window-len(l.parcels)+len(l.free)))
	l.mu.Unlock()
	if len(l.sending) == 0 {
		return false, nil
	}
	firsts, lasts, err := l.fetch(l.sending)
	if err != nil {
		return false, err
	}
	parcels, err := l.take(ctx, lasts)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	for i, p := range parcels {
		p.level, p.first = l.sending[i].level, firsts[i]
	}
	steps := l.sending
	l.sending = nil
	l.mu.Unlock()
	items = items[:0]
	for i, p := range parcels {
		p.event = steps[i].event(&l.cfg, firsts[i], lasts[i])
		p.event.Run = "/" + l.cfg.Run
		p.item.Message.Event = &p.event
		p.item.Cover = l.cover(&lasts[i].facts)
		items = append(items, &p.item)
	}
	if err := l.cfg.Publisher.Add(ctx, items); err != nil {
		return false, err
	}
	return true, nil
}

// fetch reads the changes that events are made of. A first is nil where it is the last.
func (l *listener) fetch(steps []step) (firsts, lasts []*change, err error) {
	firsts, lasts = make([]*change, len(steps)), make([]*change, len(steps))
	for i := range steps {
		s := &steps[i]
		if lasts[i], err = l.informer.log.at(s.last, l.bit); err != nil {
			return nil, nil, err
		}
		if s.first == s.last {
			continue
		}
		if firsts[i], err = l.informer.log.at(s.first, l.bit); err != nil {
			return nil, nil, err
		}
	}
	return firsts, lasts, nil
}

// event makes the event of a step.
func (s *step) event(cfg *ListenerConfig, first, last *change) event.Event {
	f := last.facts
	switch {
	case f.Op == event.Deleted || f.Op == event.Synced:
	case s.added:
		f.Op, f.Old = event.Added, nil
	case first != nil:
		f.Old = first.Old
	}
	return f.event(cfg)
}

// passBarrier passes an event about the informer on.
func (l *listener) passBarrier(ctx context.Context, items []*publisher.Item) error {
	position := l.next()
	left := len(l.leftover) > 0
	if left {
		position = l.leftover[0].position
	}
	c, err := l.informer.log.at(position, l.bit)
	if err != nil {
		return err
	}
	changes := []*change{c}
	if left {
		l.leftover = l.leftover[1:] // it is pending in the cursor
	} else {
		l.moved(changes, position+1)
	}
	return l.pass(ctx, changes, items)
}

// idle says whether nothing waits, and nothing is with the publisher.
func (l *listener) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.levels.steps == 0 && len(l.free) == len(l.parcels)
}

// awaitMore waits until something was settled since, or there is more to read.
func (l *listener) awaitMore(ctx context.Context, where ahead, settled uint64) error {
	next := l.next()
	return l.informer.log.wait(ctx, func(end uint64, closed bool) bool {
		return l.settled.Load() != settled || where == atEnd && (end > next || closed)
	})
}

// prepareLatest notes what a run before had passed on or read ahead and not seen settled.
func (l *listener) prepareLatest() error {
	for _, position := range l.stand().pending {
		found, _, err := l.informer.disk.sight(position, position+1, l.bit)
		if err != nil {
			return fmt.Errorf("what waits for sink %s: %w", l.cfg.Name, err)
		}
		for i := range found {
			found[i].tried = l.cursor.wasTried(position)
		}
		l.leftover = append(l.leftover, found...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cursor.pending = nil // some may be gone, or for others
	for i := range l.leftover {
		l.cursor.pending = append(l.cursor.pending, l.leftover[i].position)
	}
	return nil
}
