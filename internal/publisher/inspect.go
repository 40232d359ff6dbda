package publisher

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// inspectEvery is how often the sink looks at its destinations. What is found there is to be
// reported within 20 seconds.
const inspectEvery = 5 * time.Second

// inspect lets the sink look at its destinations until ctx ends.
func (p *Publisher) inspect(ctx context.Context) {
	sink, ok := p.cfg.Sink.(sinks.Inspector)
	if !ok {
		return
	}
	for ratelimit.Sleep(ctx, inspectEvery) == nil {
		if err := p.inspectOnce(ctx, sink); err != nil {
			p.reportOpenPanic(err)
		}
	}
}

func (p *Publisher) inspectOnce(ctx context.Context, sink sinks.Inspector) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
	defer sinks.RecoverAnswer(&err)
	sink.Inspect(ctx)
	return nil
}
