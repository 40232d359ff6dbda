package publisher

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Parts is how many copies of an event about an informer the sink has to be sent; 0 when it is sent
// as it is. It waits as long as the sink doesn't know: an event that is sent meanwhile, as one,
// would reach the readers of one part only. An event that is refused has no copies: it becomes a
// dead letter.
func (p *Publisher) Parts(ctx context.Context, e *event.Event) (int, error) {
	b, ok := p.cfg.Sink.(sinks.Broadcaster)
	if !ok {
		return 0, nil
	}
	if err := p.awaitOpen(ctx); err != nil {
		return 0, err
	}
	n, err := b.Parts(ctx, e)
	if isUnknown(ctx, err) {
		n, err = p.awaitParts(ctx, b, e, err)
	}
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	default:
		return 0, nil
	}
}

// isUnknown reports whether a sink that gave an error may give an answer later: not where it has
// refused the event.
func isUnknown(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && sinks.Classify(err) != sinks.Refused
}

// awaitParts asks again, after a backoff, until there is an answer. Meanwhile the event counts as
// unrouted, as it would were it added: nothing else says that a topic is missing.
func (p *Publisher) awaitParts(
	ctx context.Context, b sinks.Broadcaster, e *event.Event, err error,
) (n int, _ error) {
	p.unrouted.broadcasts.Add(1)
	defer p.unrouted.broadcasts.Add(-1)
	backoff := ratelimit.Backoff{Initial: p.cfg.Retry.Initial, Max: p.cfg.Retry.Max}
	for ; isUnknown(ctx, err); n, err = b.Parts(ctx, e) {
		p.routeFailed(err)
		p.warnings.route.Warn(p.cfg.Log, "can't find out where an event goes; its informer waits", "id",
			e.ID, "err", err)
		if err := ratelimit.Sleep(ctx, backoff.Next()); err != nil {
			return 0, err
		}
	}
	return n, err
}
