package processor

import (
	"context"
	"errors"
	"slices"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// runHistory is run for a listener that is sent every change. It calls ended when that has ended.
func (l *Listener) runHistory(ctx context.Context, ended func(error)) {
	forget := context.AfterFunc(ctx, l.cursor.Unpark) // so that the step sees that ctx has ended
	step := func() bool { return ctx.Err() == nil && l.step() }
	var resume func()
	resume = func() {
		if parked, err := l.passRead(ctx, step, resume); !parked {
			forget()
			ended(err)
		}
	}
	if err := l.passAll(ctx, l.unsent(l.left)); err != nil {
		forget()
		ended(err)
		return
	}
	l.left = nil
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
	if entries, l.refused = l.refused, nil; len(entries) > 0 {
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
	return l.add(ctx, entries, nil)
}
