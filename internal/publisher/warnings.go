package publisher

import (
	"errors"
	"log/slog"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// warnings are those that come once per message during a fault.
type warnings struct {
	retry, route, oversize, claim, panicked ratelimit.LogThrottle
	deadLettered, kept, lost, pending       ratelimit.LogThrottle // of refused messages
}

// reportPanic counts and logs the panic that an error of the work on one event is.
func (p *Publisher) reportPanic(e *event.Event, err *error) {
	if isPanic(*err) {
		p.panicked("a panic in the work on one event; it is refused", e, *err)
	}
}

// reportOpenPanic counts and logs the panic that an error of opening the sink is.
func (p *Publisher) reportOpenPanic(err error) {
	if isPanic(err) {
		p.metrics.panics.Inc()
		p.warnings.panicked.Log(p.cfg.Log, slog.LevelError, "a panic while the sink was opened or "+
			"read back; it is tried again", "err", err.Error(), "stack", event.StackOf(err))
	}
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*event.PanicError](err)
	return ok
}

// panicked counts and logs a panic during the work on one event.
func (p *Publisher) panicked(message string, e *event.Event, err error) {
	p.metrics.panics.Inc()
	p.warnings.panicked.Log(p.cfg.Log, slog.LevelError, message, "id", e.ID, "subject", e.Subject,
		"err", err.Error(), "stack", event.StackOf(err))
}
