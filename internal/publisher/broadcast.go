package publisher

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Parts is how many copies of an event about an informer the sink has to be sent; 0 when it is sent
// as it is. It waits while the broker is unavailable. An event whose destination is missing, or
// refused, has no copies: it goes the way of every such event.
func (p *Publisher) Parts(ctx context.Context, e *event.Event) (int, error) {
	b, ok := p.cfg.Sink.(sinks.Broadcaster)
	if !ok {
		return 0, nil
	}
	for {
		n, err := b.Parts(ctx, e)
		switch {
		case err == nil:
			return n, nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case sinks.Classify(err) != sinks.Reconnect:
			return 0, nil
		}
		if err := ratelimit.Sleep(ctx, time.Second); err != nil {
			return 0, context.Cause(ctx)
		}
	}
}
