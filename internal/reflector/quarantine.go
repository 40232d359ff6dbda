package reflector

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

// understand passes an error on. When it is of bytes that can't be understood, they are quarantined, once.
func (r *Reflector) understand(ctx context.Context, err error, raw []byte) error {
	unreadable, ok := errors.AsType[*unreadableError](err)
	if !ok || unreadable.quarantined {
		return err
	}
	unreadable.quarantined = true
	secret := r.cfg.Parse.Redactor.Applies(r.cfg.Type)
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](unreadable.err); ok && secret {
		// Its text quotes the input.
		unreadable.err = fmt.Errorf("%w: near byte %d of the answer", resource.ErrSyntax, syntax.ByteOffset)
	}
	r.metrics.quarantined.Inc()
	r.log.Error("the API server sent what can't be understood; a list will make up for it", "bytes", len(raw), "err", unreadable.err)
	if r.cfg.Quarantine == nil {
		return err
	}
	if secret {
		raw = nil // it holds values that nobody may see
	}
	r.cfg.Quarantine(ctx, raw[:min(len(raw), int(r.cfg.MaxFrame))], unreadable.err)
	return err
}
