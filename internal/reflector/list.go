package reflector

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

// listing is what is known of the attempts to list everything, once a Relist was begun.
type listing struct {
	consistent     bool // list what etcd has, no matter which version that is
	unpaged        bool // in one answer: every page expired before it could be asked for
	restarts       int  // of paged lists that could not be finished
	pagesRead      int  // of the current paged list
	watchListTries int  // WatchLists that failed
	watchListOff   bool // for the life of the reflector
}

// list replaces everything. After a WatchList the same stream goes on as a watch, so that it returns when the watch ends.
func (r *Reflector) list(ctx context.Context) error {
	if r.relist.Left {
		return r.leave(ctx)
	}
	if r.relist.Partial() {
		if err := r.aimMove(ctx); err != nil {
			return err
		}
	}
	r.status.set(func(s *Status) { s.Items = 0 })
	r.pagesRead = 0
	if !r.relist.Partial() && !r.cfg.DisableWatchList && !r.watchListOff {
		if err := r.watchList(ctx); r.relist == nil || !r.fallBack(ctx, err) {
			return err
		}
	}
	return r.pagedList(ctx)
}

// fallBack says whether to list by pages now, since a WatchList failed; and remembers when it is not worth another try. A server may
// fail at what it does not know with any error, so after a few of them pages are tried too.
func (r *Reflector) fallBack(ctx context.Context, err error) bool {
	if _, failed := errors.AsType[*storeError](err); failed || ctx.Err() != nil {
		return false
	}
	switch reasonOf(err) {
	case reasonExpired, reasonTooLarge, reasonBusy:
		return false // a list would be told the same
	case reasonForbidden:
		return true // perhaps only watching is
	}
	const tries = 3
	r.watchListTries++
	often := r.watchListTries >= tries
	if r.watchListOff = isNoWatchList(err, often); r.watchListOff {
		r.log.Info("WatchList does not work here: listing by pages from now on", "err", err)
	}
	return r.watchListOff || often
}

// isNoWatchList says whether an error is of a server that does not have WatchList, or has something before it that breaks it.
func isNoWatchList(err error, often bool) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		switch status.ErrStatus.Code {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
			return true
		}
		return false // it may be in trouble
	}
	return errors.Is(err, errSilent) || errors.Is(err, errSwallowed) || often && errors.Is(err, errBroke)
}

// listExpired decides how to list again after the version of a list, or a continue token, had expired.
func (r *Reflector) listExpired() {
	if r.pagesRead == 0 {
		r.consistent = true // the server has compacted what was asked for
	} else {
		r.restartList()
	}
}

// restartList makes the next attempt one that needs less of the server's history.
func (r *Reflector) restartList() {
	const patience = 3
	r.restarts++
	r.consistent = r.consistent || r.restarts >= patience
	r.unpaged = r.restarts > patience
}

// since sets the version that a list must not be older than.
func (r *Reflector) since(q url.Values) {
	if r.relist.To != "" && !r.consistent {
		q.Set("resourceVersion", string(r.relist.To))
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
}

// sinceEntering asks for the state as of the version that was chosen when the namespace came in. Where the server has forgotten that, what it
// has now has to do.
func (r *Reflector) sinceEntering(q url.Values) {
	if !r.consistent && r.relist.From != "" {
		q.Set("resourceVersion", string(r.relist.From))
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
}

// isNoExact says whether an error is of a server that can't tell the state as of a version.
func isNoExact(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && (status.ErrStatus.Code == http.StatusBadRequest || status.ErrStatus.Code == http.StatusUnprocessableEntity)
}

// pagedList replaces everything by the pages of one list, which are all of one version.
func (r *Reflector) pagedList(ctx context.Context) error {
	q := r.query()
	if r.relist.Partial() {
		r.sinceEntering(q)
	} else {
		r.since(q)
	}
	if !r.unpaged {
		q.Set("limit", strconv.Itoa(r.cfg.PageSize))
	}
	var version resource.Version
	for {
		p, err := r.listPage(ctx, q)
		if err != nil {
			r.consistent = r.consistent || r.relist.Partial() && isNoExact(err)
			return err
		}
		if r.pagesRead++; r.pagesRead == 1 {
			version = p.version
		} else if p.version != version {
			r.restartList()
			return errInconsistent
		}
		if p.next == "" {
			return r.endRelist(ctx, version)
		}
		q.Del("resourceVersion") // the token holds it
		q.Del("resourceVersionMatch")
		q.Set("continue", p.next)
	}
}

func (r *Reflector) listPage(ctx context.Context, q url.Values) (page, error) {
	s, err := r.get(ctx, q, patience{silence: r.cfg.ListTimeout})
	if err != nil {
		return page{}, err
	}
	defer s.close()
	if r.pagesRead == 0 {
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
		return p, r.understand(ctx, v.failed(err), v.Read(), v.Offset())
	}
	return p, nil
}

func (r *Reflector) beginReplace(ctx context.Context) error {
	r.metrics.lists.Inc()
	r.sparedItems, r.nameless = 0, false
	if !r.relist.Partial() {
		r.spared = map[resource.Key]bool{}
		r.relist.Namespaces = r.adopt()
	}
	return fromStore(r.cfg.Store.BeginReplace(ctx, *r.relist))
}

// replace reads one item of a list and hands it on.
func (r *Reflector) replace(ctx context.Context, v *values) error {
	obj, at, err := v.object(&r.cfg.Parse)
	if v.Err() != nil {
		return v.Err()
	}
	if refused, ok := errors.AsType[*resource.RefusedError](err); ok {
		return r.spare(ctx, refused, v.at(at))
	}
	c, refused := r.choose(obj)
	if refused != nil {
		return r.spare(ctx, refused, v.at(at))
	}
	return r.replaceWith(ctx, obj, c)
}

func (r *Reflector) replaceWith(ctx context.Context, obj *resource.Object, c choice) error {
	if c == passed {
		return nil
	}
	r.reach(obj)
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

// reach notes how far what a list has handed on goes.
func (r *Reflector) reach(obj *resource.Object) {
	if r.reached == "" || obj.Version.Newer(r.reached) {
		r.reached = obj.Version
	}
}

// endRelist says that the list was complete.
func (r *Reflector) endRelist(ctx context.Context, v resource.Version) error {
	if r.relist.Partial() {
		return r.endMove(ctx, v)
	}
	if err := r.cfg.Store.EndReplace(ctx, v); err != nil {
		return fromStore(err)
	}
	level := slog.LevelInfo
	if r.relist.Initial {
		level = slog.LevelDebug // whoever starts many reflectors tells of them together
	}
	r.relist, r.reached = nil, ""
	r.adopted()
	r.position = at(v)
	r.moved()
	r.status.set(func(s *Status) { s.Synced = true })
	r.log.Log(ctx, level, "listed everything", "resource_version", v, "items", r.status.get().Items)
	return nil
}
