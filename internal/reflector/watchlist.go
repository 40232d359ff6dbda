package reflector

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// watchList replaces everything by the initial events of a watch, and goes on watching.
func (r *Reflector) watchList(ctx context.Context) error {
	q := r.query()
	r.since(q)
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	return r.follow(ctx, q, true)
}

// takeInitial hands on one of the initial events: the state as ADDED events, which are in no order of versions, then what happened until the
// bookmark that ends them. A deletion is handed on before that end: the list's version covers it, so that no watch would bring it again. done is set
// by the last.
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

// deleteListed hands on that an object is gone before the list that told of it has ended.
func (r *Reflector) deleteListed(ctx context.Context, obj *resource.Object, c choice) error {
	if c == passed {
		return nil
	}
	r.reach(obj)
	if c == unselected {
		r.metrics.passed.Inc()
		return fromStore(r.cfg.Unselected(ctx, obj, true))
	}
	r.metrics.deleted.Inc()
	return fromStore(r.cfg.Store.Delete(ctx, obj))
}
