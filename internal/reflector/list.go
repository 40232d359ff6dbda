package reflector

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// list replaces everything. After a WatchList the same stream continues as a watch, so it returns
// when the watch ends.
func (r *Reflector) list(ctx context.Context) outcome {
	why := r.state.relist
	if why.Leaves() {
		return outcome{err: r.dropNamespace(ctx)}
	}
	if why.Partial() {
		if err := r.chooseMoveVersion(ctx); err != nil {
			return outcome{err: err}
		}
	}
	r.status.set(func(s *Status) { s.Items = 0 })
	if !why.Partial() && !r.cfg.DisableWatchList && !r.state.watchListOff {
		if o := r.watchList(ctx); r.state.relist == nil || !r.fallBack(ctx, o.err) {
			return o
		}
	}
	return r.pagedList(ctx)
}

// fallBack reports whether to list by pages now, since a WatchList failed.
func (r *Reflector) fallBack(ctx context.Context, err error) (pages bool) {
	if _, failed := errors.AsType[*storeError](err); failed || ctx.Err() != nil {
		return false
	}
	if r.state, pages = r.state.fallBack(err); r.state.watchListOff {
		r.log.Info("WatchList does not work here: listing by pages from now on", "err", err)
	}
	return pages
}

// watchList replaces everything by the initial events of a watch, and continues to watch.
func (r *Reflector) watchList(ctx context.Context) outcome {
	return r.follow(ctx, r.watchListQuery(), true)
}

func (r *Reflector) watchListQuery() url.Values {
	q := r.query()
	r.since(q)
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	return q
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
	r.setReached(obj)
	if c == unselected {
		r.metrics.passed.Inc()
		return fromStore(r.cfg.Store.Unselected(ctx, obj, true))
	}
	r.metrics.deleted.Inc()
	return fromStore(r.cfg.Store.Delete(ctx, obj))
}

// since sets the version that a list must not be older than.
func (r *Reflector) since(q url.Values) {
	if r.state.relist.To != "" && !r.state.listing.consistent {
		q.Set("resourceVersion", string(r.state.relist.To))
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
}

// sinceEntering asks for the state as of the version that was chosen when the namespace entered.
// Where the server has forgotten that version, its current state is used.
func (r *Reflector) sinceEntering(q url.Values) {
	if !r.state.listing.consistent && r.state.relist.From != "" {
		q.Set("resourceVersion", string(r.state.relist.From))
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
}

// pagedList replaces everything by the pages of one list, which are all of one version.
func (r *Reflector) pagedList(ctx context.Context) (o outcome) {
	q := r.query()
	if r.state.relist.Partial() {
		r.sinceEntering(q)
	} else {
		r.since(q)
	}
	if !r.state.listing.unpaged {
		q.Set("limit", strconv.Itoa(r.cfg.PageSize))
	}
	var version resource.Version
	for {
		var p page
		if p, o.err = r.listPage(ctx, q, o.pages == 0); o.err != nil {
			return o
		}
		if o.pages++; o.pages == 1 {
			version = p.version
		} else if p.version != version {
			o.err = errInconsistent
			return o
		}
		if p.next == "" {
			o.err = r.endRelist(ctx, version)
			return o
		}
		q.Del("resourceVersion") // the token has it
		q.Del("resourceVersionMatch")
		q.Set("continue", p.next)
	}
}

func (r *Reflector) listPage(ctx context.Context, q url.Values, first bool) (page, error) {
	s, err := r.get(ctx, q, patience{silence: r.cfg.ListTimeout})
	if err != nil {
		return page{}, err
	}
	defer s.close()
	if first {
		if err := r.beginReplace(ctx); err != nil {
			return page{}, err
		}
	}
	v := newValues(s, r.cfg.MaxFrame)
	item := func() error {
		s.alive()
		return r.replace(ctx, v)
	}
	p, err := readPage(v, item, nil)
	if err != nil {
		return p, r.understand(ctx, v.readError(err), v.Read(), v.Offset())
	}
	return p, nil
}

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
	r.setReached(obj)
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

// setReached records how far what a list has handed on goes.
func (r *Reflector) setReached(obj *resource.Object) {
	if r.state.reached == "" || obj.Version.Newer(r.state.reached) {
		r.state.reached = obj.Version
	}
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
