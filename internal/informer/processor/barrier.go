package processor

import (
	"context"
	"maps"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// Broadcaster is a Publisher whose sink is to be sent an event about all objects once for each part
// of its destination; 0 for as it is.
type Broadcaster interface {
	Parts(ctx context.Context, e *event.Event) (int, error)
	// KeepHolds takes over the holds of copies that are settled while others are not, by MessageID.
	KeepHolds(holds map[string]*publisher.Hold)
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
	if err := l.add(ctx, entries, of); err != nil {
		return err
	}
	return l.waitEmpty(ctx)
}

// countGap counts a gap that the controller could not count, since only the listener knew of it.
func (l *Listener) countGap(e *changelog.Entry) {
	switch {
	case e.Kind == changelog.OfDropped:
		l.env.Gaps.With(resource.ReasonDropped).Inc()
	case e.Unasked:
		l.env.Gaps.With(e.Relist.Reason).Inc()
	}
}

// broadcast repeats an entry about all objects for each part of the sink's destination. It is
// settled when all copies are: until then it is pending, and after a crash all are sent again, of
// which the sink recognizes those that it has. of is nil where the sink has no parts.
func (l *Listener) broadcast(
	ctx context.Context, e *changelog.Entry,
) (entries []*changelog.Entry, of *copies, err error) {
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
	return slices.Repeat(entries, parts), &copies{left: parts, holds: holds{}}, nil
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
