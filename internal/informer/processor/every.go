package processor

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// runEvery sends every change. It calls ended when it has ended.
func (l *Listener) runEvery(ctx context.Context, ended func(error)) {
	forget := context.AfterFunc(ctx, l.cursor.Unpark) // so that the step sees that ctx has ended
	step := func() bool { return ctx.Err() == nil && l.step() }
	var resume func()
	resume = func() {
		if parked, err := l.passRead(ctx, step, resume); !parked {
			forget()
			ended(err)
		}
	}
	if err := l.passAll(ctx, l.unsent(l.unacked)); err != nil {
		forget()
		ended(err)
		return
	}
	l.unacked = nil
	resume()
}

// passRead passes on the entries of the log. It reports true when it has parked at the end: then
// this goroutine may not touch the listener any more.
func (l *Listener) passRead(
	ctx context.Context, step func() bool, resume func(),
) (parked bool, err error) {
	for ctx.Err() == nil {
		entries, err := l.read()
		switch {
		case errors.Is(err, changelog.ErrEnd):
			return false, l.waitEmpty(ctx)
		case err != nil:
			return false, err
		case len(entries) > 0:
			if err := l.passAll(ctx, l.unsent(entries)); err != nil {
				return false, err
			}
		case l.cursor.Park(step, resume):
			return true, nil
		}
	}
	return false, context.Cause(ctx)
}

// read returns the entries that the step has left, or else the next ones of the log.
func (l *Listener) read() (entries []*changelog.Entry, err error) {
	if entries, l.leftByStep = l.leftByStep, nil; len(entries) > 0 {
		return entries, nil
	}
	return l.cursor.Read(readSize)
}

// stepSize and stepBytes bound what a step passes on: more pays for a goroutine of its own. The
// goroutine that runs the step serves all other listeners too, and reads on only after it: the
// payload of a large object for one sink must not delay the small ones of another.
const (
	stepSize  = 32
	stepBytes = resource.LargeBytes
)

// step passes on entries that are appended while the listener is parked, on the goroutine that
// appends them. It reports false where the listener's own goroutine has to continue: there are more
// entries, they are large, or something has to be waited for.
func (l *Listener) step() bool {
	entries, none := l.cursor.TryRead(stepSize)
	if len(entries) == 0 {
		return none
	}
	n := len(entries)
	if entries = l.unsent(entries); len(entries) == 0 {
		return n < stepSize
	}
	if sizeOf(entries) > stepBytes || !l.tryPass(entries) {
		l.leftByStep = entries
		return false
	}
	return n < stepSize
}

func sizeOf(entries []*changelog.Entry) (bytes int) {
	for _, e := range entries {
		bytes += e.Size()
	}
	return bytes
}

// tryPass is pass for entries that are not about all objects, where nothing has to be waited for.
func (l *Listener) tryPass(entries []*changelog.Entry) bool {
	if slices.ContainsFunc(entries, isAboutAll) {
		return false
	}
	inflights := l.tryAcquire(entries)
	if inflights == nil {
		return false
	}
	items := l.itemsOf(inflights, nil)
	if l.cfg.Publisher.TryAdd(items) {
		return true
	}
	l.release(items)
	return false
}

func isAboutAll(e *changelog.Entry) bool { return e.Kind.AboutAll(e.Key) }

// passAll passes entries on; an entry about all objects goes alone.
func (l *Listener) passAll(ctx context.Context, entries []*changelog.Entry) error {
	for len(entries) > 0 {
		n := upToBarrier(entries)
		if err := l.pass(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// upToBarrier returns how many entries may be in flight together: those before the first one about
// all objects, or that one alone.
func upToBarrier(entries []*changelog.Entry) int {
	n := slices.IndexFunc(entries, isAboutAll)
	if n < 0 {
		return len(entries)
	}
	return max(n, 1)
}

// pass adds the events of entries to the publisher. An entry about all objects comes alone.
func (l *Listener) pass(ctx context.Context, entries []*changelog.Entry) error {
	if isAboutAll(entries[0]) {
		return l.passBarrier(ctx, entries[0])
	}
	return l.addEvents(ctx, entries, nil)
}

// Broadcaster is a Publisher whose sink has parts, each of which gets a copy of an event about all
// objects.
type Broadcaster interface {
	// Parts returns how many parts an event has to reach; 0 to send it as it is.
	Parts(ctx context.Context, e *event.Event) (int, error)
	// KeepHolds takes over the holds of copies that are settled while others are not, by MessageID.
	KeepHolds(holds map[string]*publisher.PositionHold)
}

// passBarrier waits until everything before an entry about all objects is settled, passes the entry
// on, and waits until it is settled too.
func (l *Listener) passBarrier(ctx context.Context, e *changelog.Entry) error {
	if err := l.waitEmpty(ctx); err != nil {
		return err
	}
	isSent, err := l.resolve(ctx, e)
	if err != nil || !isSent {
		return err
	}
	l.countGap(e)
	entries, of, err := l.broadcast(ctx, e)
	if err != nil {
		return err
	}
	if err := l.addEvents(ctx, entries, of); err != nil {
		return err
	}
	return l.waitEmpty(ctx)
}

// countGap counts a gap that only the listener knows of.
func (l *Listener) countGap(e *changelog.Entry) {
	switch {
	case e.Kind == changelog.OfDropped:
		l.env.Gaps.With(resource.ReasonDropped).Inc()
	case e.AskBroker:
		l.env.Gaps.With(e.Relist.Reason).Inc()
	}
}

// broadcast repeats an entry about all objects for each part of the sink's destination. The entry
// is pending until all copies are settled. After a crash all are sent again, and the sink
// recognizes the ones that it has. of is nil where the sink has no parts.
func (l *Listener) broadcast(
	ctx context.Context, e *changelog.Entry,
) (entries []*changelog.Entry, of *eventCopies, err error) {
	entries = []*changelog.Entry{e}
	b, ok := l.cfg.Publisher.(Broadcaster)
	if !ok {
		return entries, nil, nil
	}
	ev := l.event(e)
	parts, err := b.Parts(ctx, &ev)
	if err != nil || parts == 0 {
		return entries, nil, err
	}
	parts = min(parts, l.cfg.Window) // all are in flight together
	return slices.Repeat(entries, parts), &eventCopies{left: parts, holds: holds{}}, nil
}

// handOver gives the publisher, after Detach, the holds of copies that are settled while others are
// not. All copies will be added again. After a crash before that, the sink must find the copies
// that it has, so the saved position may not pass them yet.
func (l *Listener) handOver() {
	b, ok := l.cfg.Publisher.(Broadcaster)
	if !ok {
		return
	}
	handed := holds{}
	l.mu.Lock()
	for _, p := range l.inflights {
		if of := p.copies; of != nil {
			maps.Copy(handed, of.holds)
			clear(of.holds)
		}
	}
	l.mu.Unlock()
	b.KeepHolds(handed)
}
