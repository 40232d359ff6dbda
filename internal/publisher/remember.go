package publisher

import (
	"context"
	"fmt"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Remembers reports whether the sink's broker holds events that ours knows, from an earlier run:
// see sinks.Rememberer. It waits for the sink to be open. A sink that can't look remembers nothing.
func (p *Publisher) Remembers(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (bool, error) {
	sink, ok := p.cfg.Sink.(sinks.Rememberer)
	if !ok {
		return false, nil
	}
	select {
	case <-p.opened:
	case <-p.door.closed:
		return false, ErrStopped
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if !p.door.enter() {
		return false, ErrStopped
	}
	defer p.door.leave()
	found, err := sink.Remembers(ctx, about, ours)
	if err != nil {
		return false, fmt.Errorf("sink %s: %w", p.cfg.Name, err)
	}
	return found, nil
}
