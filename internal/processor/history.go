package processor

import (
	"context"
	"errors"
	"slices"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/large"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// runHistory is Run for a listener that is sent every change.
func (l *Listener) runHistory(ctx context.Context) error {
	l.buf = make([]*changelog.Entry, 0, readSize)
	l.items = make([]*publisher.Item, 0, readSize)
	if err := l.passAll(ctx, l.unsent(l.left)); err != nil {
		return err
	}
	l.left = nil
	for {
		entries, err := l.cursor.Read(ctx, l.buf, l.step)
		if errors.Is(err, changelog.ErrEnd) {
			return l.waitEmpty(ctx)
		}
		if err != nil {
			return err
		}
		if len(l.refused) > 0 {
			entries, l.refused = l.refused, nil
		}
		if err := l.passAll(ctx, l.unsent(entries)); err != nil {
			return err
		}
	}
}

// stepSize and stepBytes bound what a step passes on: more pay for a goroutine of their own. The
// goroutine that runs the step serves all other listeners, and reads on only after it: the payload
// of a large object for one sink must not delay the small ones of another.
const (
	stepSize  = 32
	stepBytes = large.Bytes
)

// step passes on what was appended while Run waits, on the goroutine that has appended it. It
// reports false where Run has to continue: there is more, it is large, or something has to be
// waited for.
func (l *Listener) step() bool {
	entries, none := l.cursor.TryRead(l.buf[:0:stepSize])
	if len(entries) == 0 {
		return none
	}
	n := len(entries)
	if entries = l.unsent(entries); len(entries) == 0 {
		return n < stepSize
	}
	if sizeOf(entries) > stepBytes || !l.tryPass(entries) {
		l.refused = entries
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
	inflights := l.tryTake(entries)
	if inflights == nil {
		return false
	}
	items := l.itemsOf(inflights, nil)
	if l.cfg.Publisher.TryAdd(items) {
		return true
	}
	l.takeBack(items)
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
	return l.add(ctx, entries, nil)
}

// add makes the events of entries, which are copies of one where of says so, and adds them to the
// publisher.
func (l *Listener) add(ctx context.Context, entries []*changelog.Entry, of *copies) error {
	for len(entries) > 0 {
		next := entries
		if of == nil {
			next = entries[:upToLarge(entries)]
		}
		inflights, err := l.take(ctx, next)
		if err != nil {
			return err
		}
		entries = entries[len(inflights):]
		if err := l.cfg.Publisher.Add(ctx, l.itemsOf(inflights, of)); err != nil {
			return err
		}
	}
	return nil
}

// upToLarge is how many entries have their events made together: those before the first large one,
// or that alone. To compare the versions of a large object takes milliseconds, for which no small
// change before it has to wait.
func upToLarge(entries []*changelog.Entry) int {
	isLarge := func(e *changelog.Entry) bool { return e.Size() > large.Bytes }
	n := slices.IndexFunc(entries, isLarge)
	if n < 0 {
		return len(entries)
	}
	return max(n, 1)
}

// itemsOf makes the events of inflights, which are copies of one where of says so. The slice is
// used again.
func (l *Listener) itemsOf(inflights []*inflight, of *copies) []*publisher.Item {
	l.items = l.items[:0]
	for i, p := range inflights {
		p.event = l.event(p.entry)
		if p.copies = of; of != nil {
			p.event = p.event.Copy(i)
		}
		p.item.Message = sinks.Message{Event: &p.event, Exists: l.exists(p.entry)}
		l.items = append(l.items, &p.item)
	}
	return l.items
}
