package informer

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
)

// Broadcaster is a Publisher whose sink is to be sent an event about all objects once for each part
// of its destination; 0 for as it is.
type Broadcaster interface {
	Parts(ctx context.Context, e *event.Event) (int, error)
}

// broadcast repeats a change about all objects for each part of the sink's destination. It is
// settled when all copies are: until then it is pending, and after a crash all are sent again, of
// which the sink recognizes those that it has. parts is 0 where there are none.
func (l *listener) broadcast(
	ctx context.Context, e *changelog.Entry,
) (copies []*changelog.Entry, parts int, err error) {
	copies = []*changelog.Entry{e}
	b, ok := l.cfg.Publisher.(Broadcaster)
	if !ok {
		return copies, 0, nil
	}
	ev := l.cfg.event(e)
	if parts, err = b.Parts(ctx, &ev); err != nil || parts == 0 {
		return copies, 0, err
	}
	parts = min(parts, l.cfg.Window) // all are in flight together
	return slices.Repeat(copies, parts), parts, nil
}
