package reflector

import (
	"context"
	"errors"

	"github.com/kubebridge/bridge/internal/resource"
)

// locate asks for the server's version. A reflector without a position and without a list begins
// there.
func (r *Reflector) locate(ctx context.Context) (o outcome) {
	if o.server, o.err = r.probe(ctx); o.err == nil {
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

// identify asks whether the cluster is the same, except the first time: whoever made the reflector
// has just found the server.
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

// beginNow starts a reflector that wants changes from now on only.
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

func (r *Reflector) probeWith(
	ctx context.Context, q map[string][]string,
) (resource.Version, error) {
	q["limit"] = []string{"1"}
	s, err := r.get(ctx, q, patience{silence: r.cfg.ListTimeout})
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
	v := newValues(s, r.cfg.MaxFrame)
	p, err := readPage(v, v.skip, stop)
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil {
		return "", v.readError(err)
	}
	return p.version, nil
}
