package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Change is another configuration for a running bridge. Unchanged parts are not touched: the
// informers of a section keep their watches, and a sink its connections.
type Change struct {
	// Informers are the names of all informer sections; the informers of others stop. Their state
	// is kept.
	Informers []string
	// Changed are the names of the sections that are new or have changed: their informers are
	// started, or end and start again from their positions.
	Changed []string
	// Units, Unknown, Planner and PlanInterval are as in Config.
	Units        []informer.Config
	Unknown      func(resource.Type) bool
	Planner      Planner
	PlanInterval time.Duration
	// Sinks are all sinks. An entry without a Sink is the running sink of that name, and stays; an
	// entry with a Sink is new, or replaces it.
	Sinks []SinkConfig
	// Version as in Standby.
	Version string
}

// Changes counts the informers and sinks that a Change has started and stopped.
type Changes struct {
	UnitsStarted, UnitsRestarted, UnitsStopped int
	SinksStarted, SinksReplaced, SinksStopped  int
}

func (c Changes) String() string {
	if c == (Changes{}) {
		return "nothing has changed"
	}
	return fmt.Sprintf("resources: %d started, %d restarted, %d stopped; sinks: %d started, %d "+
		"replaced, %d stopped",
		c.UnitsStarted, c.UnitsRestarted, c.UnitsStopped, c.SinksStarted, c.SinksReplaced, c.SinksStopped)
}

// Reconfigure applies a Change to a running bridge, and returns when that is done. Informers that
// end have until the drain deadline to send what they have read, those that start again a shorter
// time. Events that are not sent by then lie on disk, and are sent when there is an informer of
// that unit again.
//
// It waits for a bridge that is starting, and, where another replica leads, until that one has made
// the change. An error with "nothing was changed" left everything as it was, such as
// statedb.ErrUnavailable while the disk takes no writes; ErrStopping may have left it half done,
// for a bridge that ends. Where the disk fills up meanwhile, it waits until there is space.
func (b *Bridge) Reconfigure(ctx context.Context, c *Change) (done Changes, err error) {
	if err := b.replica.awaitLeader(ctx, c.Version); err != nil {
		return done, err
	}
	err = b.askReconciler(ctx, func(ctx context.Context, f *reconciler) error {
		if b.changing.Acquire(ctx, 1) != nil {
			return ErrStopping
		}
		defer b.changing.Release(1)
		r := &reconfiguration{
			reconciler: f, b: b, change: c, replaced: map[string]bool{},
			restarts: map[string][]string{},
		}
		err := r.run(ctx)
		done = r.done
		return err
	})
	return done, err
}

// reconfiguration is one Change that is being made.
type reconfiguration struct {
	reconciler *reconciler
	b          *Bridge
	change     *Change
	wanted     map[string]*informer.Config // units that there are to be
	replaced   map[string]bool             // sinks that end
	// informers that ended to start again, with the keys of their sinks
	restarts map[string][]string
	done     Changes
}

func (r *reconfiguration) run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	r.wanted = r.allWanted()
	for _, out := range r.b.sinks.all() {
		r.replaced[out.name] = !slices.ContainsFunc(r.change.Sinks,
			func(sc SinkConfig) bool { return sc.Name == out.name && sc.Sink == nil })
	}
	if err := r.stopUnits(ctx); err != nil {
		return err
	}
	steps := []func(context.Context) error{r.changeSinks, r.startUnits}
	for _, step := range steps {
		switch err := step(ctx); {
		case errors.Is(err, ErrStopping):
			return err
		case err != nil:
			return &fatalError{fmt.Errorf("change the configuration: %w", err)}
		}
	}
	r.reconciler.planner, r.reconciler.previous = r.change.Planner, Plan{Unknown: r.change.Unknown}
	if r.change.PlanInterval > 0 {
		r.reconciler.planInterval = r.change.PlanInterval
	}
	r.b.replica.changed(r.change.Version)
	return nil
}

// check finds what can't be done before anything is touched.
func (r *reconfiguration) check() error {
	names := map[string]bool{}
	for _, sc := range r.change.Sinks {
		if names[sc.Name] {
			return fmt.Errorf("sink %s: the name is used twice", sc.Name)
		}
		names[sc.Name] = true
		if sc.Sink == nil && r.b.sinks.get(sc.Name) == nil {
			return fmt.Errorf("sink %s: %w", sc.Name, ErrUnknown)
		}
	}
	units := map[string]bool{}
	for i := range r.change.Units {
		u := &r.change.Units[i]
		if units[u.Name()] {
			return errTwice(u.Name())
		}
		units[u.Name()] = true
		for _, b := range u.Sinks {
			if !names[b.Sink] {
				return fmt.Errorf("informer %s: there is no sink %q", u.Name(), b.Sink)
			}
		}
	}
	// What ends would wait for the disk, and read nothing meanwhile.
	return r.b.cfg.DB.Database().Unavailable()
}

// stopUnits ends the units that are not wanted any more, and those that are to begin again.
func (r *reconfiguration) stopUnits(ctx context.Context) error {
	var again, gone []*informer.Informer
	for _, u := range r.b.informers.all() {
		switch {
		case !r.affects(u):
			continue
		case r.wanted[u.Name()] != nil:
			again = append(again, u)
		default:
			gone = append(gone, u)
		}
		u.Log().Info("the configuration has changed: the informer of the resource stops",
			"resource", u.Config().Type.String(), "starts_again", r.wanted[u.Name()] != nil)
		u.Stop(informer.Changed)
	}
	if err := r.awaitEnd(ctx, again, min(restartPatience, r.b.cfg.Drain)); err != nil {
		return err
	}
	if err := r.awaitEnd(ctx, gone, r.b.cfg.Drain); err != nil {
		return err
	}
	for _, u := range slices.Concat(again, gone) {
		if err := r.takeOut(ctx, u); err != nil {
			return err
		}
	}
	for _, u := range again {
		r.restarts[u.Name()] = u.Replica.SinkKeys()
	}
	r.done.UnitsStopped += len(gone)
	return nil
}

// allWanted returns the units that there are to be, by name. A unit of a section that has not
// changed stays what it is, also when discovery does not have its resource just now.
func (r *reconfiguration) allWanted() map[string]*informer.Config {
	wanted := map[string]*informer.Config{}
	for i := range r.change.Units {
		wanted[r.change.Units[i].Name()] = &r.change.Units[i]
	}
	for _, u := range r.b.informers.all() {
		informer := u.Config().Informer
		stays := slices.Contains(r.change.Informers, informer) &&
			!slices.Contains(r.change.Changed, informer)
		if wanted[u.Name()] == nil && stays {
			wanted[u.Name()] = u.Config()
		}
	}
	return wanted
}

// affects reports whether an informer can't stay as it is.
func (r *reconfiguration) affects(u *informer.Informer) bool {
	return !slices.Contains(r.change.Informers, u.Config().Informer) ||
		slices.Contains(r.change.Changed, u.Config().Informer) ||
		slices.ContainsFunc(u.Config().Sinks, func(b informer.Binding) bool { return r.replaced[b.Sink] })
}

// restartPatience is how long an informer that starts again may take to send what it has read: it
// reads nothing meanwhile.
const restartPatience = 5 * time.Second

// awaitEnd waits until informers have sent everything, for a while, and then aborts them. An
// informer whose sink is unavailable, or paused, would not end.
func (r *reconfiguration) awaitEnd(
	ctx context.Context, units []*informer.Informer, patience time.Duration,
) error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, u := range units {
		for parted := false; ; {
			select {
			case <-u.Ended():
			case <-ctx.Done():
				return ErrStopping
			case now := <-tick.C:
				if !parted && (now.After(deadline) || r.inVain(u)) {
					u.Abort(ctx)
					parted = true
				}
				continue
			}
			break
		}
	}
	return nil
}

// inVain reports whether an informer waits for a sink that takes nothing now.
func (r *reconfiguration) inVain(u *informer.Informer) bool {
	return slices.ContainsFunc(u.PendingFor(), func(sink string) bool {
		s := r.b.sinks.get(sink).publisher.Status()
		return !s.Connected || s.Paused
	})
}

// takeOut removes an informer that has ended. Events that its sinks have not acknowledged go to
// disk.
func (r *reconfiguration) takeOut(ctx context.Context, u *informer.Informer) error {
	unclean := !u.IsClean()
	if err := u.Spool(); err != nil {
		u.Log().Warn("not all pending events could be put on disk; some of them may be sent twice", "err",
			err)
		unclean = true
		r.b.process = rand.Text()[:8]
	}
	for !r.reconciler.remove(u, informer.Changed) {
		// The disk is full: the informer has ended, and its last state has to be on it.
		if ratelimit.Sleep(ctx, time.Second) != nil {
			return ErrStopping
		}
	}
	r.reconciler.unclean[u.Name()] = unclean
	return nil
}

// untilWritten repeats a write until the disk takes it: a change that was begun is finished.
func (r *reconfiguration) untilWritten(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, statedb.ErrUnavailable) {
			return err
		}
		if r.b.cfg.DB.Database().WaitAvailable(ctx) != nil {
			return ErrStopping
		}
	}
}

// changeSinks ends the sinks that are not wanted any more, or are replaced, and starts the new
// ones.
func (r *reconfiguration) changeSinks(ctx context.Context) error {
	before, unread := map[string]bool{}, map[string][]byte{}
	for _, out := range r.b.sinks.all() {
		before[out.name] = true
		if !r.replaced[out.name] {
			continue
		}
		r.b.log.Info("the configuration has changed: the sink stops", "sink", out.name)
		if err := r.untilWritten(ctx, func() error { return r.b.endSink(out) }); err != nil {
			return err
		}
		unread[out.key] = out.publisher.UnreadPosition() // a leader before may have reported it
		r.done.SinksStopped++
	}
	list := make([]*sinkRunner, 0, len(r.change.Sinks))
	for _, sc := range r.change.Sinks {
		if sc.Sink == nil {
			list = append(list, r.b.sinks.get(sc.Name))
			continue
		}
		out, err := r.b.newSinkRunner(sc, true, newLossReport(r.b, &sc).send)
		if err != nil {
			return err
		}
		out.publisher.ContinueFrom(unread[out.key])
		if r.b.pauses.find(kindSink, sc.Name) != nil {
			out.publisher.Pause()
		}
		if !r.b.replica.follows() {
			r.reconciler.startSink(out)
		}
		list = append(list, out)
		if before[sc.Name] {
			r.done.SinksReplaced++
			r.done.SinksStopped--
		} else {
			r.done.SinksStarted++
		}
	}
	r.b.sinks.set(list)
	return nil
}

// startUnits starts the changed units, and starts the ones again that ended for it. The next plan
// has the other units that there are to watch.
func (r *reconfiguration) startUnits(ctx context.Context) error {
	r.b.informers.keepInformers(r.change.Informers)
	there := map[string]bool{}
	for _, u := range r.b.informers.all() {
		there[u.Name()] = true
	}
	for _, name := range slices.Sorted(maps.Keys(r.wanted)) {
		uc, again := r.wanted[name], r.restarts[name] != nil
		if there[name] || !again && !slices.Contains(r.change.Changed, uc.Informer) {
			continue
		}
		if err := r.untilWritten(ctx, func() error { return r.startUnit(*uc, again) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconfiguration) startUnit(uc informer.Config, again bool) error {
	if again && uc.Snapshot == informer.SnapshotAlways {
		uc.Snapshot = informer.SnapshotInitial // always is at every start of the bridge
	}
	var joins []string
	if again {
		joins = r.needsBackfill(&uc)
	}
	u, err := r.reconciler.start(uc, joins)
	if err != nil {
		return err
	}
	u.Log().Info("the configuration has changed: the informer of the resource starts",
		"resource", uc.Type.String(), "watermark", u.From(), "again", again)
	if again {
		r.done.UnitsRestarted++
	} else {
		r.done.UnitsStarted++
	}
	return nil
}
