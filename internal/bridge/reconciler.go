package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// reconciler keeps the informers in sync with what the API server serves: it starts those whose
// resource has appeared, moves those whose version has changed, and stops those whose resource has
// gone. It also answers the requests to the running bridge, so informers are started and stopped
// one after the other. It is owned by the goroutine of run.
type reconciler struct {
	b             *Bridge
	startInformer func(*informer.Informer)
	startSink     func(*sinkRunner)
	// unclean has the informers that ended for a change of the configuration and have no successor
	// yet, and whether one may have sent events that are not known on disk.
	unclean map[string]bool
	// asked is when the plan was last asked for, and last the signs of that time.
	asked time.Time
	last  string
	again time.Time // when to ask once more, since discovery may lag behind a sign; zero for never
	// heldBack: the last plan could not be applied, since the disk takes no writes.
	heldBack bool
	// previous is the last plan.
	previous Plan
	// planner and planInterval are as in Config. A reload replaces them.
	planner      Planner
	planInterval time.Duration
}

// appeared is the label of an informer that starts while the bridge runs; that of one that stops is
// its DrainReason.
const appeared = "appeared"

// countChanges makes the counter of informers that start and stop while the bridge runs.
func countChanges(reg prometheus.Registerer) *metric.Counters {
	return metric.With(reg).Counters("bridge_units_changed_total",
		"Resources that appeared, moved to another version, went, or were stopped by another "+
			"configuration while the bridge ran.",
		"change", appeared, string(informer.Gone), string(informer.Moving), string(informer.Changed))
}

// secondLook is how long after a sign of a change the API server is asked once more: its discovery
// lags behind.
const secondLook = 3 * time.Second

// run works until ctx ends.
func (r *reconciler) run(ctx context.Context) error {
	defer close(r.b.ended)
	defer r.leaveUnclean()
	tick := time.NewTicker(min(time.Second, r.planInterval))
	defer tick.Stop()
	r.asked = time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-r.b.requests:
			if err := req.answer(ctx, r); err != nil {
				return err
			}
			continue
		case <-tick.C:
		}
		if r.planner == nil || !r.due(time.Now()) {
			continue
		}
		plan, err := r.planner(ctx)
		if err != nil {
			r.b.log.Debug("can't ask the API server what it serves, trying again", "err", err)
			continue
		}
		if err := r.b.changing.Acquire(ctx, 1); err != nil {
			return nil
		}
		err = r.apply(ctx, &plan)
		r.b.changing.Release(1)
		if errors.Is(err, statedb.ErrUnavailable) {
			r.holdBack(err)
			continue
		}
		if err != nil {
			return err
		}
		r.previous, r.heldBack = plan, false
	}
}

// leaveUnclean records at the end that an informer which may have sent unknown events has no
// successor that would find out: its section was removed, or a stop came before the start.
func (r *reconciler) leaveUnclean() {
	for _, unclean := range r.unclean {
		if unclean {
			r.b.informers.setUnclean()
		}
	}
}

// holdBack makes the plan be made again when the disk takes writes. Until then previous stays, so
// that a resource that appeared is as new then as it is now. It is logged once.
func (r *reconciler) holdBack(err error) {
	if !r.heldBack {
		r.b.log.Warn("a resource that the API server serves is not watched until the state directory "+
			"takes writes again", "err", err)
	}
	r.heldBack = true
}

// due reports whether to ask for a plan now: after the interval; when an informer's resource is not
// found; when a CRD or an APIService has changed; when the disk no longer holds a plan back.
func (r *reconciler) due(now time.Time) bool {
	signs := r.signs()
	changed := signs != r.last
	r.last = signs
	switch {
	case changed:
		r.again = now.Add(secondLook)
	case !r.again.IsZero() && now.After(r.again):
		r.again = time.Time{}
	case r.reap():
	case r.heldBack && r.b.cfg.DB.Database().Unavailable() == nil:
		r.heldBack = false
	case now.Sub(r.asked) < r.planInterval:
		return false
	}
	r.asked = now
	return true
}

// signs returns what shows that the API server serves other resources: those that are not found,
// and new versions of definitions.
func (r *reconciler) signs() string {
	var s strings.Builder
	for _, u := range r.b.informers.all() {
		status := u.Reader().Status()
		switch {
		case status.NotFound:
			s.WriteString(u.Name())
		case isDefinition(u):
			s.WriteString(string(status.Version))
		default:
			continue
		}
		s.WriteByte(' ')
	}
	return s.String()
}

// isDefinition reports whether an informer's objects define what the API server serves.
func isDefinition(u *informer.Informer) bool {
	name := u.Config().Type.String()
	return name == "customresourcedefinitions.apiextensions.k8s.io" ||
		name == "apiservices.apiregistration.k8s.io"
}

// reap removes the informers that have drained, and reports whether one of them is to start again.
func (r *reconciler) reap() (again bool) {
	for _, u := range r.b.informers.all() {
		why := u.Draining()
		if why == informer.NotDraining {
			continue
		}
		select {
		case <-u.Ended():
			again = r.remove(u, why) && why == informer.Moving || again
		default:
		}
	}
	return again
}

// remove closes an informer that has ended, and reports whether its state is on disk.
func (r *reconciler) remove(u *informer.Informer, why informer.DrainReason) bool {
	if err := u.Close(); err != nil {
		if !errors.Is(err, statedb.ErrUnavailable) { // which the database reports, once
			r.b.log.Error("commit failed, will be tried again", "err", err)
		}
		return false
	}
	r.b.changes.With(string(why)).Inc()
	r.b.informers.remove(u, why)
	return true
}

// apply starts and stops informers.
func (r *reconciler) apply(ctx context.Context, plan *Plan) error {
	r.reap()
	wanted := plan.byName()
	exists := map[string]bool{}
	for _, u := range r.b.informers.all() {
		exists[u.Name()] = true
		w, ok := wanted[u.Name()]
		r.reconcile(u, &w, ok, plan)
	}
	for i := range plan.Units {
		cfg := plan.Units[i]
		if exists[cfg.Name()] || ctx.Err() != nil {
			continue
		}
		if err := r.startAppeared(cfg); err != nil {
			return err
		}
	}
	return nil
}

// reconcile stops an informer that the plan does not have, or has in another version. A resource is
// gone when discovery and a request show it; one alone may be a server that is just starting.
func (r *reconciler) reconcile(u *informer.Informer, w *informer.Config, wanted bool, plan *Plan) {
	notFound, t := u.Reader().Status().NotFound, u.Config().Type
	switch {
	case u.Draining() != informer.NotDraining:
	case !wanted && notFound && plan.knows(t):
		u.Log().Warn("the API server does not serve the resource any more: its informer stops, "+
			"and its state is kept",
			"resource", t.String())
		u.Stop(informer.Gone)
	case wanted && w.Type != t && plan.knows(t) && (notFound || u.CaughtUp()):
		u.Log().Info("the resource moves to another version of the API",
			"resource", t.String(), "from", t.Version, "to", w.Type.Version)
		u.Stop(informer.Moving)
	}
}

// startAppeared starts an informer for a resource that appeared while the bridge runs.
func (r *reconciler) startAppeared(cfg informer.Config) error {
	if cfg.Snapshot == informer.SnapshotAlways ||
		cfg.Snapshot == informer.SnapshotNever && r.previous.knows(cfg.Type) {
		// Always is at every start of the bridge. Never is no objects that exist; but the resource
		// did not exist before, so all its objects are changes.
		cfg.Snapshot = informer.SnapshotInitial
	}
	u, err := r.start(cfg, nil)
	if err != nil {
		return err
	}
	u.Log().Info("the API server serves a resource that is not watched yet: its informer starts",
		"resource", cfg.Type.String(), "version", cfg.Type.Version, "watermark", u.From())
	r.b.changes.With(appeared).Inc()
	return nil
}

// start starts an informer. backfill are sinks that it begins to feed and that another replica has
// fed before. It fails with statedb.ErrUnavailable while the disk takes no writes: a start may have
// to write, and some of its writes would block until the disk takes them.
func (r *reconciler) start(cfg informer.Config, backfill []string) (*informer.Informer, error) {
	if err := r.b.cfg.DB.Database().Unavailable(); err != nil {
		return nil, fmt.Errorf("start a unit: informer %s: %w", cfg.Name(), err)
	}
	unclean, known := r.unclean[cfg.Name()]
	if !known {
		unclean = !r.b.cfg.DB.Database().Runs().WasClean()
	}
	u, err := r.b.newInformer(cfg, len(backfill) > 0, unclean)
	if err != nil {
		return nil, fmt.Errorf("start a unit: %w", err)
	}
	delete(r.unclean, cfg.Name())
	if r.b.pauses.find(kindInformer, cfg.Informer) != nil {
		u.Reader().Pause()
	}
	r.b.informers.add(u)
	r.startInformer(u)
	if len(backfill) > 0 {
		u.Go(func(ctx context.Context) { r.b.replica.backfill(ctx, u, backfill) })
	}
	return u, nil
}

// newInformer opens the state of a unit and connects its stages.
func (b *Bridge) newInformer(cfg informer.Config, relist, unclean bool) (*informer.Informer, error) {
	if cfg.Owners {
		b.ownerCache.enable()
	}
	env := informer.Env{
		Cluster: b.cfg.Cluster, Client: b.cfg.Client, DB: b.cfg.DB, Committer: b.committer,
		Spooler: b.spooler, Budget: b.budget, Namespaces: b.namespaces, Sink: b.sinks.forInformer,
		Owners: b.owners, OnDelete: b.ownerCache.deleted, Trace: b.cfg.Trace,
		Watchdog: b.cfg.Watchdog, Identify: b.cfg.Identify, Log: b.log, Registerer: b.cfg.Registerer,
	}
	if b.replica != nil {
		env.Replicas = b.replica
	}
	return informer.New(cfg, env, informer.Start{Relist: relist, Unclean: unclean, Run: b.process})
}

// Plan is the units to be watched, by what the API server serves now.
type Plan struct {
	// Units are what the configuration selects and the API server serves.
	Units []informer.Config
	// Unknown reports whether the absence of a resource from Units means nothing, since its API
	// group does not answer. nil: it never does.
	Unknown func(resource.Type) bool
}

// Planner asks the API server what there is to watch. It blocks until the answer is there or ctx
// ends.
type Planner func(ctx context.Context) (Plan, error)

// knows reports whether the API server does not serve a resource that is not in the plan.
func (p *Plan) knows(t resource.Type) bool { return p.Unknown == nil || !p.Unknown(t) }

func (p *Plan) byName() map[string]informer.Config {
	units := make(map[string]informer.Config, len(p.Units))
	for _, u := range p.Units {
		units[u.Name()] = u
	}
	return units
}
