package reflector

import (
	"context"
	"errors"
	"log/slog"

	"github.com/kubebridge/bridge/internal/resource"
	"k8s.io/apimachinery/pkg/watch"
)

// beginReplace starts an attempt of a list.
func (r *Reflector) beginReplace(ctx context.Context) error {
	r.metrics.lists.Inc()
	r.quarantine.items, r.quarantine.unidentified = 0, false
	why := *r.state.relist
	if !why.Partial() {
		r.quarantine.skipped = map[resource.Key]bool{}
		why.Namespaces = r.nextSelection()
	}
	return fromStore(r.cfg.Store.BeginReplace(ctx, why))
}

// replace reads one item of a list and hands it on.
func (r *Reflector) replace(ctx context.Context, v *values) error {
	obj, at, err := v.object(&r.cfg.Parse)
	if v.Err() != nil {
		return v.Err()
	}
	if refused, ok := errors.AsType[*resource.RefusedError](err); ok {
		return r.skipItem(ctx, refused, v.at(at))
	}
	c, refused := r.choose(obj)
	if refused != nil {
		return r.skipItem(ctx, refused, v.at(at))
	}
	return r.replaceWith(ctx, obj, c)
}

func (r *Reflector) replaceWith(ctx context.Context, obj *resource.Object, c choice) error {
	if c == unwanted {
		return nil
	}
	r.state.setReached(obj)
	if c == unselected {
		return r.listUnselected(ctx, obj)
	}
	if err := r.cfg.Store.Replace(ctx, obj); err != nil {
		return fromStore(err)
	}
	r.metrics.listItems.Inc()
	r.seen(func(s *Status) { s.Items++ })
	return nil
}

// takeInitial hands on one of the initial events. They are the state as ADDED events, in no order
// of versions, then what happened until the bookmark that ends them. A deletion is handed on before
// that end: the list's version covers it, so no watch would bring it again. done is true for the
// last.
func (r *Reflector) takeInitial(ctx context.Context, f *frame) (done bool, err error) {
	switch f.event {
	case watch.Added, watch.Modified:
		return false, r.replaceWith(ctx, f.obj, f.choice)
	case watch.Deleted:
		return false, r.deleteListed(ctx, f.obj, f.choice)
	case watch.Bookmark:
		if !f.initialEnd {
			return false, errSwallowed // the server sends no other bookmark before it
		}
		return true, r.endRelist(ctx, f.version)
	default:
		return false, f.status
	}
}

// deleteListed hands on that an object was deleted before the list that had it has ended.
func (r *Reflector) deleteListed(ctx context.Context, obj *resource.Object, c choice) error {
	if c == unwanted {
		return nil
	}
	r.state.setReached(obj)
	if c == unselected {
		r.metrics.passed.Inc()
		return fromStore(r.cfg.Store.Unselected(ctx, obj, true))
	}
	r.metrics.deleted.Inc()
	return fromStore(r.cfg.Store.Delete(ctx, obj))
}

// endRelist is called when the list was complete.
func (r *Reflector) endRelist(ctx context.Context, v resource.Version) error {
	if r.state.relist.Partial() {
		return r.endMove(ctx, v)
	}
	if err := r.cfg.Store.EndReplace(ctx, v); err != nil {
		return fromStore(err)
	}
	level := slog.LevelInfo
	if r.state.relist.Initial() {
		level = slog.LevelDebug // whoever starts many reflectors logs about all of them
	}
	r.state = r.state.listed(at(v))
	r.state.unidentified = r.quarantine.unidentified
	r.selectionTaken()
	r.publishPosition()
	r.status.set(func(s *Status) { s.Synced = true })
	r.log.Log(ctx, level, "listed everything", "resource_version", v, "items", r.status.get().Items)
	return nil
}
