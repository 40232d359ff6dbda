package reflector

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

// locate asks for the server's version. A reflector without a position and without a list begins
// there.
func (r *Reflector) locate(ctx context.Context) (o stepResult) {
	asked := time.Now()
	if o.server, o.err = r.probe(ctx); o.err == nil {
		r.joinClock(ctx, o.server, asked)
		o.err = r.identify(ctx)
	}
	if o.err != nil {
		return o
	}
	o.diverged = r.cfg.Diverged.Reset()
	if r.state.at.version == "" && r.state.relist == nil {
		o.diverged, o.err = false, r.beginNow(ctx, o.server)
	}
	return o
}

// identify checks that the cluster is the same, except the first time: the caller of New has just
// found the server.
func (r *Reflector) identify(ctx context.Context) error {
	if r.cfg.Identify == nil || !r.state.failed {
		return nil
	}
	err := r.cfg.Identify(ctx)
	if errors.Is(err, ErrOtherCluster) {
		return &storeError{err}
	}
	return err
}

// beginNow starts a reflector that only wants changes from now on.
func (r *Reflector) beginNow(ctx context.Context, now resource.Version) error {
	if err := r.takeSelection(ctx); err != nil {
		return err
	}
	if err := r.bookmark(ctx, now); err != nil {
		return err
	}
	r.status.set(func(s *Status) { s.Synced = true })
	return nil
}

// probe asks for the server's version, by the smallest consistent list.
func (r *Reflector) probe(ctx context.Context) (resource.Version, error) {
	q := r.query()
	// Without selectors: the server would have to search for the first object that they select.
	q.Del("labelSelector")
	q.Del("fieldSelector")
	v, err := r.probeWith(ctx, q)
	if err != nil && reasonOf(err) == reasonForbidden && (r.cfg.LabelSelector != "" ||
		r.cfg.FieldSelector != "") {
		return r.probeWith(ctx, r.query()) // the rights cover only what is selected
	}
	return v, err
}

func (r *Reflector) probeWith(ctx context.Context, q map[string][]string) (resource.Version, error) {
	q["limit"] = []string{"1"}
	s, err := r.get(ctx, q, answerTimeouts{silence: r.cfg.ListTimeout})
	if err != nil {
		return "", err
	}
	defer s.close()
	stop := func(p page) error {
		if p.version == "" {
			return nil
		}
		return errEnough
	}
	v := newFrameReader(s, r.cfg.MaxFrame)
	p, err := readPage(v, v.skip, stop)
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil {
		return "", v.readError(err)
	}
	return p.version, nil
}

// list replaces everything. After a WatchList the same stream continues as a watch, so it returns
// when the watch ends.
func (r *Reflector) list(ctx context.Context) stepResult {
	why := r.state.relist
	if why.Leaves() {
		return stepResult{err: r.dropNamespace(ctx)}
	}
	if why.Partial() {
		if err := r.chooseMoveVersion(ctx); err != nil {
			return stepResult{err: err}
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

// chooseMoveVersion chooses the version as of which a namespace is listed: the current one, so that
// the objects of an earlier namespace of its name are gone by then. The list is made as of it, also
// after a crash, and the watch brings every later version.
func (r *Reflector) chooseMoveVersion(ctx context.Context) error {
	if r.state.relist.From != "" {
		return nil
	}
	now, err := r.probe(ctx)
	r.state = r.state.listAsOf(now)
	return err
}

// fallBack reports whether to list by pages now, after a WatchList failed.
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
func (r *Reflector) watchList(ctx context.Context) stepResult {
	return r.readWatch(ctx, r.watchListQuery(), true)
}

func (r *Reflector) watchListQuery() url.Values {
	q := r.query()
	r.since(q)
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	return q
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
func (r *Reflector) pagedList(ctx context.Context) (o stepResult) {
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
	s, err := r.get(ctx, q, answerTimeouts{silence: r.cfg.ListTimeout})
	if err != nil {
		return page{}, err
	}
	defer s.close()
	if first {
		if err := r.beginReplace(ctx); err != nil {
			return page{}, err
		}
	}
	v := newFrameReader(s, r.cfg.MaxFrame)
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
