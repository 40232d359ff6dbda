package publisher

import (
	"context"
	"log/slog"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// inspectEvery is how often the sink looks at its destinations. What is found there is to be
// reported within 20 seconds.
const inspectEvery = 5 * time.Second

// inspect lets the sink look at its destinations until ctx ends. OnLoss is called again while it
// fails.
func (p *Publisher) inspect(ctx context.Context) {
	sink, ok := p.cfg.Sink.(sinks.Inspector)
	if !ok {
		return
	}
	pending := false
	for ratelimit.Sleep(ctx, inspectEvery) == nil {
		losses, err := p.inspectOnce(ctx, sink)
		if err != nil {
			p.reportOpenPanic(err)
		}
		for _, loss := range losses {
			p.metrics.losses.With(loss.Reason).Inc()
			p.warnings.losses.Log(p.cfg.Log, slog.LevelError, "the sink's destination has lost what "+
				"it had acknowledged", "destination", loss.Destination, "reason", loss.Reason,
				"acknowledged", loss.Before, "ends_at", loss.Now)
		}
		if isNew := len(losses) > 0; isNew || pending {
			p.queue.Flush() // what waited for the destination need not wait longer
			pending = p.cfg.OnLoss != nil && p.cfg.OnLoss(ctx, !isNew) != nil
		}
	}
}

func (p *Publisher) inspectOnce(
	ctx context.Context, sink sinks.Inspector,
) (losses []sinks.Loss, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
	defer sinks.RecoverAnswer(&err)
	return sink.Inspect(ctx), nil
}
