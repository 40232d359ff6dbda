package processor

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/publisher"
)

// A listener with Latest reads the log ahead of what it sends, in memory and on disk, as far as it
// goes. It stops at the next event about the informer, so that what such an event says is true, and
// at Ahead pending events. Of each object at most one event is with the publisher; of what came
// since, only the newest is sent. What that makes needless is settled at once, with two exceptions.
// The first of the changes of an object that the listener was sent nothing of is settled with the
// event, so that after a crash the event is an Added again. So is the first of those whose old
// object is needed. It holds back the state of those behind it (changelog.States), so a replay
// begins there.

// readAheadState is why reading ahead has stopped.
type readAheadState int

const (
	atEnd     readAheadState = iota // of what there is
	atBound                         // enough is pending
	atBarrier                       // an event about all objects is next
	atClose                         // nothing will come
)

// runLatest sends the newest states only.
func (l *Listener) runLatest(ctx context.Context) error {
	for {
		settled := l.wakeUps.Load()
		where, due := atBarrier, l.postponedDue()
		if !due { // else what comes would have to wait too
			var err error
			if where, err = l.readAhead(); err != nil {
				return err
			}
		}
		sent, err := l.sendReady(ctx)
		if err != nil {
			return err
		}
		switch {
		case sent:
		case due && l.idle():
			err = l.passPostponed(ctx)
		case due:
			err = l.awaitStalled(ctx, settled)
		case where == atClose && l.idle() && !l.barriers.hasPostponed.Load():
			return nil
		case where == atBarrier && l.isReadyForBarrier():
			err = l.passNext(ctx, settled)
		case where == atBarrier:
			err = l.awaitStalled(ctx, settled)
		default:
			err = l.awaitMore(ctx, where, settled)
		}
		if err != nil {
			return err
		}
	}
}

// readAhead queues the entries that the log has now, and acks those that become needless.
func (l *Listener) readAhead() (readAheadState, error) {
	_, end, closed := l.cursor.Next()
	for {
		where := l.readBacklog()
		if where != atEnd {
			return where, nil
		}
		if next, _, _ := l.cursor.Next(); next >= end {
			if closed {
				where = atClose
			}
			return where, nil
		}
		if l.full() {
			return atBound, nil
		}
		found, next, err := l.cursor.Headers()
		if err != nil {
			return 0, err
		}
		if where = l.queueHeader(found, next); where != atEnd {
			return where, nil
		}
	}
}

// readBacklog queues the entries that an earlier run has left.
func (l *Listener) readBacklog() readAheadState {
	where, n, delivered, needless := l.addHeaders(l.unackedHeaders)
	l.unackedHeaders = l.unackedHeaders[n:]
	l.cursor.Ack(delivered)
	l.ackNeedless(needless)
	return where
}

// queueHeader queues the found entries, and claims them; next is behind them.
func (l *Listener) queueHeader(found []changelog.Header, next changelog.Position) readAheadState {
	where, n, delivered, needless := l.addHeaders(found)
	if n < len(found) {
		next = found[n].Position
	}
	l.cursor.Claim(found[:n], next)
	l.cursor.Ack(delivered)
	l.ackNeedless(needless)
	return where
}

// addHeaders queues the first n of the found entries, except for those that the leader before has
// delivered. where says why it has stopped.
func (l *Listener) addHeaders(
	found []changelog.Header,
) (where readAheadState, n int, delivered []changelog.Ack, needless []changelog.Position) {
	d := l.delivered()
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; n < len(found); n++ {
		if d.standing.Progress.Delivered != "" && d.has(&found[n]) {
			delivered = append(delivered, changelog.Ack{At: found[n].Position})
			continue
		}
		if where = l.stopsAtLocked(&found[n]); where != atEnd {
			break
		}
		needless = append(needless, l.queue.queue(&found[n])...)
	}
	return where, n, delivered, needless
}

func (l *Listener) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.full()
}

func (l *Listener) stopsAtLocked(h *changelog.Header) readAheadState {
	switch {
	case h.Kind.AboutAll(h.Key):
		return atBarrier
	case l.queue.full():
		return atBound
	}
	return atEnd
}

// ackNeedless acks entries that this listener will not be sent.
func (l *Listener) ackNeedless(positions []changelog.Position) {
	if len(positions) == 0 {
		return
	}
	l.collapsed.Add(float64(len(positions)))
	acks := make([]changelog.Ack, len(positions))
	for i, at := range positions {
		acks[i].At = at
	}
	l.cursor.Ack(acks)
}

// DemandReporter is a Publisher that reports how many items it can use now: *publisher.Publisher.
type DemandReporter interface {
	Demand() (items int, changed <-chan struct{})
}

// demand returns how many more events the publisher can use. Events that it has are sent as they
// are. So while the sink is paused or unavailable, the newest states are held back. When the answer
// may have changed, the listener is woken.
func (l *Listener) demand(ctx context.Context) int {
	d, ok := l.cfg.Publisher.(DemandReporter)
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
			l.wake()
		}()
	}
	return items - min(items, l.inFlight())
}

// sendReady sends what is ready, within the window and the demand, and reports whether it sent
// anything.
func (l *Listener) sendReady(ctx context.Context) (bool, error) {
	most := min(readSize, l.demand(ctx))
	l.mu.Lock()
	ready := l.queue.pop(min(most, l.roomLocked()))
	l.mu.Unlock()
	if len(ready) == 0 {
		return false, nil
	}
	firsts, lasts, err := l.fetch(ready)
	if err != nil {
		return false, err
	}
	inflights, err := l.acquire(ctx, lasts)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	for i, p := range inflights {
		p.object, p.first = ready[i].object, firsts[i]
	}
	l.mu.Unlock()
	items := make([]*publisher.Item, 0, len(inflights))
	for i, p := range inflights {
		p.event = l.latestEvent(&ready[i], firsts[i], lasts[i])
		p.event.Run = "/" + l.cfg.Run
		p.item.Message.Event = &p.event
		items = append(items, &p.item)
	}
	if err := l.cfg.Publisher.Add(ctx, items); err != nil {
		return false, err
	}
	return true, nil
}

// fetch reads the entries that events are made of. A first is nil where it is the last.
func (l *Listener) fetch(ready []pendingEvent) (firsts, lasts []*changelog.Entry, err error) {
	firsts, lasts = make([]*changelog.Entry, len(ready)), make([]*changelog.Entry, len(ready))
	for i := range ready {
		p := &ready[i]
		if lasts[i], err = l.cursor.Load(p.last); err != nil {
			return nil, nil, err
		}
		if p.first == p.last {
			continue
		}
		if firsts[i], err = l.cursor.Load(p.first); err != nil {
			return nil, nil, err
		}
	}
	return firsts, lasts, nil
}

// latestEvent makes a pending event of its entries.
func (l *Listener) latestEvent(p *pendingEvent, first, last *changelog.Entry) event.Event {
	if last.Kind != changelog.OfObject || last.Op == event.Deleted || last.Op == event.Synced {
		return l.event(last)
	}
	ch := last.Change
	switch {
	case p.added:
		ch.Op, ch.Old = event.Added, nil
	case first != nil:
		ch.Old = first.Old
	}
	ch.Changed = "" // there may be versions between, and which depends on the sink's pace
	return l.objectEvent(&ch)
}

// passNext passes on the next entry, which is about all objects. Where that can't pass what is
// stalled, it waits until the listener was woken since.
func (l *Listener) passNext(ctx context.Context, settled uint64) error {
	at, _, _ := l.cursor.Next()
	left := len(l.unackedHeaders) > 0
	if left {
		at = l.unackedHeaders[0].Position
	}
	e, err := l.cursor.Load(at)
	if err != nil {
		return err
	}
	if !l.mayPass(e) && !l.idle() {
		return l.awaitStalled(ctx, settled)
	}
	if left {
		l.unackedHeaders = l.unackedHeaders[1:] // it is pending
	} else {
		l.cursor.Claim([]changelog.Header{e.Header()}, at+1)
	}
	l.mu.Lock()
	l.queue.barrier = at
	l.mu.Unlock()
	return l.passBarrier(ctx, e)
}

// isReadyForBarrier reports whether each object that has something to send has an event with the
// publisher, and these are stalled.
func (l *Listener) isReadyForBarrier() bool {
	l.mu.Lock()
	isReady := len(l.queue.ready) == 0
	l.mu.Unlock()
	return isReady && l.onlyStalled()
}

// awaitStalled waits until the listener was woken since, or another look is due at what is stalled.
func (l *Listener) awaitStalled(ctx context.Context, settled uint64) error {
	look := time.AfterFunc(stallCheck, l.wake)
	defer look.Stop()
	return l.awaitMore(ctx, atBarrier, settled)
}

// awaitMore waits until the listener was woken since, or there is more to read.
func (l *Listener) awaitMore(ctx context.Context, where readAheadState, settled uint64) error {
	return l.cursor.Wait(ctx, where == atEnd, func() bool { return l.wakeUps.Load() != settled })
}
