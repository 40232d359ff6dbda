package reflector

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// initial is the first part of a WatchList: the state as ADDED events, up to the bookmark that ends it.
type initial struct {
	// gone are objects that were deleted before the bookmark came. What is being replaced can't be deleted from, so
	// they are deleted after it.
	gone map[resource.Key]*resource.Object
}

// maxGone bounds what is kept of deletions before the bookmark; the list is given up beyond.
const maxGone = 10_000

// watchList replaces everything by the initial events of a watch, and goes on watching.
func (r *Reflector) watchList(ctx context.Context) error {
	q := r.query()
	r.since(q)
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	return r.follow(ctx, q, &initial{gone: map[resource.Key]*resource.Object{}})
}

// takeInitial hands on one of the initial events, which are in no order of versions. done is set by the last.
func (r *Reflector) takeInitial(ctx context.Context, f *frame, in *initial) (done bool, err error) {
	if f.obj != nil && !r.selects(f.obj) {
		return false, nil
	}
	switch f.event {
	case watch.Added, watch.Modified:
		delete(in.gone, f.obj.Key())
		return false, r.replaceWith(ctx, f.obj)
	case watch.Deleted:
		in.gone[f.obj.Key()] = f.obj
		if len(in.gone) > maxGone {
			return false, errNoInitialEnd
		}
		return false, nil
	case watch.Bookmark:
		if !f.initialEnd {
			return false, errSwallowed // the server sends no other bookmark before it
		}
		return true, r.endInitial(ctx, f.version, in)
	default:
		return false, f.status
	}
}

func (r *Reflector) endInitial(ctx context.Context, v resource.Version, in *initial) error {
	for key := range in.gone {
		if r.cfg.Withdraw == nil {
			break
		}
		if err := r.cfg.Withdraw(ctx, key); err != nil {
			return fromStore(err)
		}
	}
	if err := r.endRelist(ctx, v); err != nil {
		return err
	}
	for _, obj := range slices.SortedFunc(maps.Values(in.gone), byVersion) {
		if err := r.delete(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// delete hands on that an object is gone.
func (r *Reflector) delete(ctx context.Context, obj *resource.Object) error {
	if !r.matches(obj) {
		r.metrics.passed.Inc()
		return fromStore(r.cfg.Unselected(ctx, obj, true))
	}
	r.metrics.deleted.Inc()
	return fromStore(r.cfg.Store.Delete(ctx, obj))
}

func byVersion(a, b *resource.Object) int {
	order, _ := a.Version.Compare(b.Version)
	return order
}
