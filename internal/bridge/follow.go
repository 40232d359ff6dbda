package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

// leaving is why a unit is being stopped while the bridge runs.
type leaving string

const (
	staying        leaving = ""
	leavingGone    leaving = "gone"    // the API server does not serve its resource any more
	leavingToMove  leaving = "moving"  // to another version of the API
	leavingChanged leaving = "changed" // the configuration is another
)

// Causes of a unit's end.
var (
	errGone  = errors.New("the API server does not serve the resource any more")
	errMoves = errors.New("the resource moves to another version of the API")
	// errChanged also ends sinks.
	errChanged = errors.New("the configuration has changed")
)

// follower keeps the units in sync with what the API server serves: it starts those whose resource has appeared, moves those whose
// version has changed, and stops those whose resource has gone. It also does what is requested of the bridge while it runs, so that all that
// starts and stops units is done one after the other. It is owned by the goroutine that runs it.
type follower struct {
	*Bridge
	start       func(*unit)   // runs a unit
	startOutlet func(*outlet) // runs a sink
	// unclean has the units that ended for a change of the configuration, and whether one may have sent
	// what is not known on disk.
	unclean map[string]bool
	// asked is when the plan was last asked for, and last what the signs were then.
	asked time.Time
	last  string
	again time.Time // when to ask once more, since discovery may lag behind a sign; zero for never
	// previous is the last plan.
	previous Plan
	// planner and planInterval are as in Config. A reload replaces them.
	planner      Planner
	planInterval time.Duration
}

// appeared is the label of a unit that starts while the bridge runs; those that stop have why they are leaving.
const appeared = "appeared"

// countChanges makes the counter of what happens to units while the bridge runs.
func countChanges(reg prometheus.Registerer) *prometheus.CounterVec {
	return metric.With(reg).Counters("bridge_units_changed_total",
		"Resources that appeared, moved to another version, went, or were stopped by another configuration while the bridge ran.",
		"change", appeared, string(leavingGone), string(leavingToMove), string(leavingChanged))
}

// secondLook is how long after a sign of a change the API server is asked once more: what it says of itself lags behind.
const secondLook = 3 * time.Second

// follow works until ctx ends.
func (f *follower) follow(ctx context.Context) error {
	defer close(f.ended)
	tick := time.NewTicker(min(time.Second, f.planInterval))
	defer tick.Stop()
	f.asked = time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-f.requests:
			if err := r.answer(ctx, f); err != nil {
				return err
			}
			continue
		case <-tick.C:
		}
		if f.planner == nil || !f.due(time.Now()) {
			continue
		}
		plan, err := f.planner(ctx)
		if err != nil {
			f.log.Debug("can't ask the API server what it serves, trying again", "err", err)
			continue
		}
		if err := f.changing.Acquire(ctx, 1); err != nil {
			return nil
		}
		err = f.apply(ctx, &plan)
		f.changing.Release(1)
		if err != nil {
			return err
		}
		f.previous = plan
	}
}

// due says whether to ask for a plan now: after the interval; when a unit's resource is not found; when a CRD or an APIService has changed.
func (f *follower) due(now time.Time) bool {
	signs := f.signs()
	changed := signs != f.last
	f.last = signs
	switch {
	case changed:
		f.again = now.Add(secondLook)
	case !f.again.IsZero() && now.After(f.again):
		f.again = time.Time{}
	case f.bury():
	case now.Sub(f.asked) < f.planInterval:
		return false
	}
	f.asked = now
	return true
}

// signs are what tells that the API server serves something else: resources that are not found, and new versions of definitions.
func (f *follower) signs() string {
	var s strings.Builder
	for _, u := range f.roster.all() {
		status := u.reflector.Status()
		switch {
		case status.NotFound:
			s.WriteString(u.name)
		case u.defines():
			s.WriteString(string(status.Version))
		default:
			continue
		}
		s.WriteByte(' ')
	}
	return s.String()
}

// defines says whether the unit's objects define what the API server serves.
func (u *unit) defines() bool {
	name := u.cfg.Type.String()
	return name == "customresourcedefinitions.apiextensions.k8s.io" || name == "apiservices.apiregistration.k8s.io"
}

// bury takes out the units that were stopped and have settled everything, and says whether one of them is to start again.
func (f *follower) bury() (again bool) {
	for _, u := range f.roster.all() {
		why := u.leaving()
		if why == staying {
			continue
		}
		select {
		case <-u.ended:
			again = f.take(u, why) && why == leavingToMove || again
		default:
		}
	}
	return again
}

// take ends what is left of a unit when its state is on disk.
func (f *follower) take(u *unit, why leaving) bool {
	if err := f.committer.Untrack(u.informer.Log()); err != nil {
		f.log.Error("commit failed, will be tried again", "err", err)
		return false
	}
	u.metrics.End()
	f.changes.WithLabelValues(string(why)).Inc()
	f.roster.remove(u, why)
	return true
}

// apply starts and stops units.
func (f *follower) apply(ctx context.Context, plan *Plan) error {
	f.bury()
	wanted := plan.byName()
	there := map[string]bool{}
	for _, u := range f.roster.all() {
		there[u.name] = true
		w, ok := wanted[u.name]
		f.judge(u, &w, ok, plan)
	}
	for i := range plan.Units {
		uc := plan.Units[i]
		if there[uc.Name()] || ctx.Err() != nil {
			continue
		}
		if err := f.appear(uc); err != nil {
			return err
		}
	}
	return nil
}

// judge stops a unit that the plan does not have, or has in another version. A resource is gone when both say so: what the server
// tells of itself, and a request; one alone may be a server that is just starting.
func (f *follower) judge(u *unit, w *UnitConfig, wanted bool, plan *Plan) {
	notFound := u.reflector.Status().NotFound
	switch {
	case u.leaving() != staying:
	case !wanted && notFound && plan.knows(u.cfg.Type):
		u.log.Warn("the API server does not serve the resource any more: its informer stops, and its state is kept", "resource", u.cfg.Type.String())
		u.leave(leavingGone, errGone)
	case wanted && w.Type != u.cfg.Type && plan.knows(u.cfg.Type) && (notFound || u.caughtUp()):
		u.log.Info("the resource moves to another version of the API",
			"resource", u.cfg.Type.String(), "from", u.cfg.Type.Version, "to", w.Type.Version)
		u.leave(leavingToMove, errMoves)
	}
}

// caughtUp says whether a unit can be stopped and started again without being away for long: what waits for a sink that is away would
// have to be sent before.
func (u *unit) caughtUp() bool {
	s := u.informer.Status()
	return s.Log.DiskBytes == 0 && s.Log.Bytes <= s.Log.Capacity/4 && u.fifo.HasSynced()
}

// appear starts a unit while the bridge runs.
func (f *follower) appear(uc UnitConfig) error {
	if uc.Snapshot == SnapshotAlways || uc.Snapshot == SnapshotNever && f.previous.knows(uc.Type) {
		// Always is at every start of the bridge. Never is no objects that exist; but the resource did not exist before, so all
		// its objects are changes.
		uc.Snapshot = SnapshotInitial
	}
	u, err := f.add(uc)
	if err != nil {
		return err
	}
	u.log.Info("the API server serves a resource that is not watched yet: its informer starts",
		"resource", uc.Type.String(), "version", uc.Type.Version, "watermark", u.from())
	f.changes.WithLabelValues(appeared).Inc()
	return nil
}

// add starts a unit.
func (f *follower) add(uc UnitConfig) (*unit, error) { return f.addAndJoin(uc, nil) }

// addAndJoin starts a unit that begins to feed some sinks which another replica has fed before.
func (f *follower) addAndJoin(uc UnitConfig, joins []string) (*unit, error) {
	unclean, known := f.unclean[uc.Name()]
	if !known {
		unclean = !f.cfg.DB.WasClean()
	}
	u, err := f.newUnit(uc, len(joins) > 0, unclean)
	if err != nil {
		return nil, fmt.Errorf("start a unit: %w", err)
	}
	delete(f.unclean, uc.Name())
	if f.pauses.of(kindInformer, uc.Informer) != nil {
		u.reflector.Pause()
	}
	f.roster.add(u)
	f.start(u)
	if len(joins) > 0 {
		u.startJob(func(ctx context.Context) { f.replica.heal(ctx, u, joins) })
	}
	return u, nil
}
