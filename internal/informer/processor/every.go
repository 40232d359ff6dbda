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

// runEvery is run for a listener that is sent every change. It calls ended when that has ended.
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

// passRead passes on what the log has. It reports true when that is all so far: then it has parked,
// and this goroutine may touch the listener no more.
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

// read gives what the step has read and not passed on, or what the log has, if anything.
func (l *Listener) read() (entries []*changelog.Entry, err error) {
	if entries, l.leftByStep = l.leftByStep, nil; len(entries) > 0 {
		return entries, nil
	}
	return l.cursor.Read(readSize)
}

// stepSize and stepBytes bound what a step passes on: more pay for a goroutine of their own. The
// goroutine that runs the step serves all other listeners, and reads on only after it: the payload
// of a large object for one sink must not delay the small ones of another.
const (
	stepSize  = 32
	stepBytes = resource.LargeBytes
)

// step passes on what was appended while the listener is parked, on the goroutine that has appended
// it. It reports false where a goroutine of its own has to continue: there is more, it is large, or
// something has to be waited for.
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

// passAll passes entries on, those about all objects alone.
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

// upToBarrier is how many entries may be in flight together: those before the first that is about
// all objects, or that alone.
func upToBarrier(entries []*changelog.Entry) int {
	n := slices.IndexFunc(entries, isAboutAll)
	if n < 0 {
		return len(entries)
	}
	return max(n, 1)
}

// pass makes the events of entries and adds them to the publisher. One about all objects has the
// way to itself.
func (l *Listener) pass(ctx context.Context, entries []*changelog.Entry) error {
	if isAboutAll(entries[0]) {
		return l.passBarrier(ctx, entries[0])
	}
	return l.addEvents(ctx, entries, nil)
}

// Broadcaster is a Publisher whose sink is to be sent an event about all objects once for each part
// of its destination; 0 for as it is.
type Broadcaster interface {
	Parts(ctx context.Context, e *event.Event) (int, error)
	// KeepHolds takes over the holds of copies that are settled while others are not, by MessageID.
	KeepHolds(holds map[string]*publisher.PositionHold)
}

// passBarrier passes on an entry about all objects, when everything before it is settled, and
// waits until it is settled itself.
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

// countGap counts a gap that the controller could not count, since only the listener knew of it.
func (l *Listener) countGap(e *changelog.Entry) {
	switch {
	case e.Kind == changelog.OfDropped:
		l.env.Gaps.With(resource.ReasonDropped).Inc()
	case e.AskBroker:
		l.env.Gaps.With(e.Relist.Reason).Inc()
	}
}

// broadcast repeats an entry about all objects for each part of the sink's destination. It is
// settled when all copies are: until then it is pending, and after a crash all are sent again, of
// which the sink recognizes those that it has. of is nil where the sink has no parts.
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
// not. All copies will be added again. After a crash before that, the sink must find those that it
// has: so the position that is saved may not pass them yet.
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
