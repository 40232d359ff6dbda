package informer

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
)

// Broadcaster is a Publisher whose sink is to be sent an event about all objects once for each part
// of its destination; 0 for as it is.
type Broadcaster interface {
	Parts(ctx context.Context, e *event.Event) (int, error)
}

// broadcast repeats a change about all objects for each part of the sink's destination. It is settled
// when all copies are: until then it is pending, and after a crash all are sent again, of which the
// sink recognizes those that it has. parts is 0 where there are none.
func (l *listener) broadcast(ctx context.Context, c *change) (copies []*change, parts int, err error) {
	copies = []*change{c}
	b, ok := l.cfg.Publisher.(Broadcaster)
	if !ok {
		return copies, 0, nil
	}
	e := c.event(&l.cfg)
	if parts, err = b.Parts(ctx, &e); err != nil || parts == 0 {
		return copies, 0, err
	}
	parts = min(parts, l.cfg.Window) // all are in flight together
	c.waiting.Add(int32(parts - 1))
	return slices.Repeat(copies, parts), parts, nil
}
