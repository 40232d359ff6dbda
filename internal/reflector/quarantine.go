package reflector

import (
	"context"
	"errors"
)

// understand passes an error on. When it is of bytes that can't be understood, they are quarantined, once.
func (r *Reflector) understand(ctx context.Context, err error, raw []byte) error {
	unreadable, ok := errors.AsType[*unreadableError](err)
	if !ok || unreadable.quarantined {
		return err
	}
	unreadable.quarantined = true
	r.metrics.quarantined.Inc()
	r.log.Error("the API server sent what can't be understood; a list will make up for it", "bytes", len(raw), "err", unreadable.err)
	if r.cfg.Quarantine == nil {
		return err
	}
	if r.cfg.Parse.Redactor.Applies(r.cfg.Type) {
		raw = nil // it holds values that nobody may see
	}
	r.cfg.Quarantine(ctx, raw[:min(len(raw), int(r.cfg.MaxFrame))], unreadable.err)
	return err
}
