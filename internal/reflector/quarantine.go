package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Why data could not be understood, as metric labels and in events.
const (
	unreadableSyntax     = "syntax"     // no JSON
	unreadableTooLarge   = "too-large"  // more than MaxFrame
	unreadableTooDeep    = "too-deep"   // more than resource.MaxDepth
	unreadableKind       = "wrong-kind" // an object of another kind
	unreadableIncomplete = "incomplete" // no metadata, name or resourceVersion
	unreadableDuplicate  = "duplicate"  // a member is there twice
	unreadableType       = "wrong-type" // a member of the wrong type, or no object
	unreadableRedact     = "redact"     // secrets in a place where they can't be taken out
	unreadablePanic      = "panic"      // the parser or a selector panicked
	unreadableUnexpected = "unexpected" // JSON, and no frame or list
)

var unreadableReasons = []string{
	unreadableSyntax, unreadableTooLarge, unreadableTooDeep, unreadableKind, unreadableIncomplete,
	unreadableDuplicate, unreadableType, unreadableRedact,
	unreadablePanic, unreadableUnexpected,
}

func whyUnreadable(err error) string {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool {
			return errors.Is(err, target)
		})
	}
	switch {
	case is(ErrFrameTooLarge):
		return unreadableTooLarge
	case is(resource.ErrDepth):
		return unreadableTooDeep
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
	case isPanic(err):
		return unreadablePanic
	}
	return unreadableUnexpected
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*resource.PanicError](err)
	return ok
}

// quarantine is what was reported already.
type quarantine struct {
	reported, reportedBefore map[string]bool // see first
	// skipped are the objects that the last list of everything has skipped: another list would
	// report no more of them.
	skipped map[resource.Key]bool
	// items counts those that the current list has skipped, except isolated ones; unidentified is
	// set when one of them is.
	items        int
	unidentified bool
}

// warnings come once per version of an object: a tenant may write any number of versions that can't
// be understood.
type warnings struct {
	unreadable, panicked ratelimit.LogThrottle
}

// maxSkipped is how many items of a list may be skipped. With more, the list itself is wrong, or a
// proxy damages it, and it is read again.
const maxSkipped = 64

// isNew reports whether something is reported for the first time, as far as is remembered:
// otherwise items that stop every list, or that each list skips, would be reported each time.
func (q *quarantine) isNew(id string) bool {
	const half = 4096 // at least so much is remembered
	if q.reported[id] || q.reportedBefore[id] {
		return false
	}
	if len(q.reported) == half {
		q.reported, q.reportedBefore = nil, q.reported
	}
	if q.reported == nil {
		q.reported = map[string]bool{}
	}
	q.reported[id] = true
	return true
}

// understand returns the error. When it is of bytes that can't be understood, it quarantines them,
// once. raw begins at offset at of the answer.
func (r *Reflector) understand(ctx context.Context, err error, raw []byte, at int64) error {
	unreadable, ok := errors.AsType[*unreadableError](err)
	if !ok || unreadable.quarantined {
		return err
	}
	unreadable.quarantined = true
	u := r.unreadable(unreadable, raw, at)
	r.metrics.quarantined.With(u.Reason).Inc()
	if !r.quarantine.isNew(u.ID()) {
		return err
	}
	r.warnings.unreadable.Log(r.log, slog.LevelError, "the API server sent what can't be understood",
		"key", u.Key, "reason", u.Reason, "bytes", u.Size, "digest", u.Digest,
		"err", unreadable.err)
	if failed, ok := errors.AsType[*resource.PanicError](unreadable.err); ok {
		r.warnings.panicked.Log(r.log, slog.LevelError,
			"this is a defect of the bridge: please report it", "key", u.Key, "err", failed,
			"stack", string(failed.Stack))
	}
	if failed := r.cfg.Store.Quarantine(ctx, u); failed != nil {
		return fromStore(failed)
	}
	return err
}

func (r *Reflector) unreadable(e *unreadableError, raw []byte, at int64) *resource.Unreadable {
	reason := whyUnreadable(e.err)
	raw = raw[:min(len(raw), int(r.cfg.MaxFrame))]
	stable := resource.Whole
	switch reason {
	case unreadableSyntax:
		// otherwise it was found in a value that was read
		if syntax, ok := errors.AsType[*jsonscan.SyntaxError](e.err); ok {
			// How much was read beyond the wrong byte depends on how the network cut the stream.
			stable = int(min(max(syntax.Offset-at+1, 0), int64(len(raw))))
		}
	case unreadableTooLarge:
		stable = len(raw)
	case unreadableUnexpected:
		stable = 0
	}
	u := resource.NewUnreadable(&r.cfg.Parse, raw, stable, r.state.at.version, e.err)
	u.Reason = reason
	u.Listed, u.Version = e.listed, e.version
	if refused, ok := errors.AsType[*resource.RefusedError](e.err); ok {
		if u.Key = refused.Key; refused.Identified() {
			u.Occurrence = refused.UID + "/" + string(refused.Version)
		}
	}
	if !r.cfg.Parse.Redacts() {
		u.Message = e.err.Error()
	}
	return u
}

// skipItem reports an item of a list that can't be understood, so that the list continues behind
// it. An error is the Store's, or of a list with too many such items.
func (r *Reflector) skipItem(ctx context.Context, refused *resource.RefusedError, raw []byte) error {
	if !r.concerns(refused) {
		return nil
	}
	alone := r.isolated(refused)
	if !alone && !r.skippable(refused) {
		return r.understand(ctx, &unreadableError{err: refused}, raw, 0)
	}
	if err := r.quarantineOnly(ctx, &unreadableError{err: refused, listed: true}, raw); err != nil {
		return err
	}
	switch {
	case alone && r.state.relist.Rewound():
		// What is known of it may belong to the lost history, and have a later version than those
		// to come.
		obj := objectOf(refused)
		r.state.setReached(obj)
		return fromStore(r.cfg.Store.Unselected(ctx, obj, false))
	case alone:
	case r.quarantine.items == maxSkipped:
		return &unreadableError{err: fmt.Errorf("more than %d items of a list: %w", maxSkipped,
			refused), quarantined: true}
	default:
		r.quarantine.items++
		r.remember(refused.Key)
	}
	return fromStore(r.cfg.Store.Skip(ctx, refused.Identity))
}

// remember records the object of an item that was skipped, "" for an unidentified one.
func (r *Reflector) remember(key resource.Key) {
	if key != "" {
		r.quarantine.skipped[key] = true
	} else {
		r.quarantine.unidentified = true
	}
}

// isolated reports whether a refused object is too deep, too large or made the parser panic, and is
// identified. Any tenant may create any number of such objects. So each is reported, and nothing
// else stops or waits for it: no list can read more of it, and no list is given up for their
// number.
func (r *Reflector) isolated(refused *resource.RefusedError) bool {
	return refused.Identified() && (errors.Is(refused, resource.ErrDepth) ||
		errors.Is(refused, ErrFrameTooLarge) || isPanic(refused))
}

// skippable reports whether a list may continue behind an item. An item of another kind shows that
// this is not the requested list. And after the server's history went back, the known state of an
// object may belong to the lost history, with a version that would cover those to come: then the
// object must be understood.
func (r *Reflector) skippable(refused *resource.RefusedError) bool {
	return !r.state.relist.Rewound() && !errors.Is(refused, resource.ErrWrongKind)
}

// quarantineOnly reports unreadable data where nothing else has to be done about it. An error is
// the Store's.
func (r *Reflector) quarantineOnly(ctx context.Context, err *unreadableError, raw []byte) error {
	if failed, ok := errors.AsType[*storeError](r.understand(ctx, err, raw, 0)); ok {
		return failed
	}
	return nil
}
