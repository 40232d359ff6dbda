package reflector

import (
	"context"
	"errors"
	"slices"

	"github.com/kubebridge/bridge/internal/jsonscan"
	"github.com/kubebridge/bridge/internal/resource"
)

// Why something could not be understood, as metric labels and in events.
const (
	unreadableSyntax     = "syntax"     // no JSON
	unreadableTooLarge   = "too-large"  // more than MaxFrame
	unreadableKind       = "wrong-kind" // an object of another kind
	unreadableIncomplete = "incomplete" // no metadata, name or resourceVersion
	unreadableDuplicate  = "duplicate"  // a member is there twice
	unreadableType       = "wrong-type" // a member of the wrong type, or no object
	unreadableRedact     = "redact"     // secrets in a place where they can't be taken out
	unreadableUnexpected = "unexpected" // JSON, but no frame and no list
)

var unreadableReasons = []string{
	unreadableSyntax, unreadableTooLarge, unreadableKind, unreadableIncomplete, unreadableDuplicate, unreadableType, unreadableRedact, unreadableUnexpected,
}

// whyUnreadable sorts an error.
func whyUnreadable(err error) string {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(ErrFrameTooLarge):
		return unreadableTooLarge
	case is(resource.ErrSyntax):
		return unreadableSyntax
	case is(resource.ErrWrongKind):
		return unreadableKind
	case is(resource.ErrNoMetadata, resource.ErrNoName, resource.ErrNoVersion):
		return unreadableIncomplete
	case is(resource.ErrDuplicate):
		return unreadableDuplicate
	case is(resource.ErrFieldType, resource.ErrNotObject):
		return unreadableType
	case is(resource.ErrRedact):
		return unreadableRedact
	}
	return unreadableUnexpected
}

// quarantine is what was told already.
type quarantine struct{ told []string }

// first says whether something is told for the first time, as far back as is remembered: an object that no list can be read past
// would else be told at each attempt.
func (q *quarantine) first(id string) bool {
	const remembered = 64
	if slices.Contains(q.told, id) {
		return false
	}
	if q.told = append(q.told, id); len(q.told) > remembered {
		q.told = q.told[1:]
	}
	return true
}

// understand passes an error on. When it is of bytes that can't be understood, they are quarantined, once. raw begins at offset at of the
// answer.
func (r *Reflector) understand(ctx context.Context, err error, raw []byte, at int64) error {
	unreadable, ok := errors.AsType[*unreadableError](err)
	if !ok || unreadable.quarantined {
		return err
	}
	unreadable.quarantined = true
	u := r.unreadable(unreadable, raw, at)
	r.metrics.quarantined.WithLabelValues(u.Reason).Inc()
	r.log.Error("the API server sent what can't be understood; a list will make up for it",
		"reason", u.Reason, "bytes", u.Size, "digest", u.Digest, "err", unreadable.err)
	if r.cfg.Quarantine == nil || !r.first(u.ID()) {
		return err
	}
	if failed := r.cfg.Quarantine(ctx, u); failed != nil {
		return fromStore(failed)
	}
	return err
}

// unreadable is what can be kept of bytes.
func (r *Reflector) unreadable(e *unreadableError, raw []byte, at int64) *resource.Unreadable {
	reason := whyUnreadable(e.err)
	raw = raw[:min(len(raw), int(r.cfg.MaxFrame))]
	stable := resource.Whole
	switch reason {
	case unreadableSyntax:
		if syntax, ok := errors.AsType[*jsonscan.SyntaxError](e.err); ok { // else it was found in a value that was read
			// What was read beyond the byte that makes no sense depends on how the network cut the stream.
			stable = int(min(max(syntax.Offset-at+1, 0), int64(len(raw))))
		}
	case unreadableTooLarge:
		stable = len(raw)
	case unreadableUnexpected:
		stable = 0
	}
	u := resource.NewUnreadable(&r.cfg.Parse, raw, stable, r.version)
	u.Reason = reason
	if !u.Withheld {
		u.Message = e.err.Error()
	}
	return u
}
