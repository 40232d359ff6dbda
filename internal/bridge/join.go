package bridge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// awaitLeader waits until the leader has a version of the configuration, or this replica leads. So
// a unit that starts again starts at the leader first: the leader's first list is the older one,
// and nothing pending at a standby is older than what the leader has sent.
func (r *replica) awaitLeader(ctx context.Context, version string) error {
	if r == nil || version == "" {
		return nil
	}
	logged := false
	for began := time.Now(); r.follows() &&
		r.leaderHas() != version; _ = ratelimit.Sleep(ctx, r.cfg.Interval/4) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.stopping:
			return ErrStopping
		default:
		}
		if time.Since(began) > leaderFirst {
			r.log.Warn("the leader has another configuration; the changed one is taken here all the same",
				"leader", r.cfg.Lease.Leader(), "waited", leaderFirst.String())
			return nil
		}
		if !logged {
			r.log.Info("the configuration has changed: waiting until the leader has taken it", "leader",
				r.cfg.Lease.Leader())
		}
		logged = true
	}
	return nil
}

func (r *replica) leaderHas() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress.Version
}

// configuration returns the version of the configuration.
func (r *replica) configuration() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// changed records another version of the configuration. A sink that the leader before has fed, and
// this one does not feed now, has ended in order: it needs no backfill when it comes back.
func (r *replica) changed(version string) {
	if r == nil {
		return
	}
	fed := map[string][]string{}
	for _, u := range r.informers.all() {
		fed[u.Config().Informer] = u.Replica.SinkKeys()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = version
	if r.state != leading || r.progress.Feeds == nil {
		return
	}
	feeds := maps.Clone(r.progress.Feeds)
	for informer, keys := range feeds {
		feeds[informer] = slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
			return !slices.Contains(fed[informer], key)
		})
	}
	r.progress.Feeds = feeds
}

// needsBackfill returns the sinks that an informer which starts again has not fed before, and that
// the leader, or the one before this replica, has. This replica has not kept the events that the
// leader had not sent to them in the end. So the informer lists, and a gap reports it if this
// replica has to publish before the leader has passed the list.
func (r *reconfiguration) needsBackfill(uc *informer.Config) (sinks []string) {
	if r.b.replica == nil || !r.b.replica.leaderRuns(uc.Name()) {
		return nil
	}
	for _, b := range uc.Sinks {
		key := r.b.sinks.get(b.Sink).key
		if !slices.Contains(r.restarts[uc.Name()], key) && r.b.replica.feeds(uc.Informer, key, false) {
			sinks = append(sinks, b.Sink)
		}
	}
	return sinks
}

// backfill sends all objects to sinks that an informer begins to feed, if this replica publishes
// before the leader has passed the informer's list. The gap reports that something is missing; the
// list, which knows the state of other sinks, sends only differences.
func (r *replica) backfill(ctx context.Context, u *informer.Informer, sinks []string) {
	for ctx.Err() == nil && !(u.HasSynced() && (!r.follows() || r.unitBehind(u) == "")) {
		_ = ratelimit.Sleep(ctx, r.cfg.Interval/4)
	}
	if ctx.Err() != nil || r.unitBehind(u) == "" {
		return
	}
	u.Log().Warn("other replicas have sent to these sinks what this one can't know of: all "+
		"objects are sent to them",
		"resource", u.Config().Type.String(), "sinks", sinks)
	for _, sink := range sinks {
		request := informer.SnapshotRequest{Informer: u.Config().Informer, Sink: sink}
		u.Snapshots.Send(ctx, &request, time.Now().UnixMilli())
	}
}

// notInSync returns, for each informer that could not take over without a gap, the reason.
func (r *replica) notInSync() []Reason { return r.reasons(r.unitBehind) }

func (r *replica) reasons(of func(*informer.Informer) string) (reasons []Reason) {
	for _, u := range r.informers.all() {
		if u.Draining() != informer.NotDraining {
			continue
		}
		if why := of(u); why != "" {
			reasons = append(reasons, Reason{Component: "informer " + u.Name(), Message: "standby: " + why})
		}
	}
	return reasons
}

// unitBehind returns why an informer could not take over without a gap; "" when it could.
func (r *replica) unitBehind(u *informer.Informer) string {
	p, found := r.progressOf(u)
	from, epoch, listed := u.Replica.SeenSince()
	switch {
	case !found && r.leaderRuns(u.Name()):
		return "the leader selects something else: it has another configuration"
	case !found:
		return "the leader has not reported how far it is"
	case !listed:
		return "catching up: it is being listed"
	case epoch != p.Epoch:
		return fmt.Sprintf("the API server's history went back %s, and %s for the leader", times(epoch),
			times(p.Epoch))
	case p.Delivered == "" || !from.NotNewer(p.Delivered):
		return fmt.Sprintf("catching up: it knows everything since version %s, and the leader "+
			"has delivered up to %s",
			from, cmp.Or(string(p.Delivered), "nothing yet"))
	}
	return ""
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// leaderFirst is how long a standby waits for the leader to take a changed configuration. Then it
// takes the change alone: they may not have the same file, or the leader's is refused.
const leaderFirst = 2 * time.Minute

// unitUnready is unitBehind, except for a unit that the leader's configuration does not have, or
// has with another selection. Such a unit begins with its list, whoever leads. Else a configuration
// that is rolled out would wait for itself.
func (r *replica) unitUnready(u *informer.Informer) string {
	why := r.unitBehind(u)
	if _, found := r.progressOf(u); why == "" || found || !r.leaderReported() {
		return why
	}
	if _, _, listed := u.Replica.SeenSince(); !listed {
		return "catching up: it is being listed"
	}
	if r.configuredAsLeader() && time.Since(u.Replica.Began()) < leaderFirst {
		return why
	}
	return ""
}

// configuredAsLeader reports whether this replica may have the leader's configuration.
func (r *replica) configuredAsLeader() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version == "" || r.progress.Version == "" || r.version == r.progress.Version
}

// notReady returns why a standby should not be relied on.
func (r *replica) notReady() []Reason {
	r.mu.Lock()
	err, since, taking := r.readErr, age(r.readAt), r.takeErr
	r.mu.Unlock()
	if taking != nil {
		return []Reason{{
			Component: "standby",
			Message:   "this replica has the lease and can't take over: " + taking.Error(),
		}}
	}
	if err != nil && since > 10*time.Second {
		return []Reason{{Component: "standby", Message: err.Error()}}
	}
	reasons := r.reasons(r.unitUnready)
	if why := r.otherKey(); why != "" {
		reasons = append(reasons, Reason{Component: "redaction", Message: why})
	}
	return reasons
}

// age returns the time since t; 0 for the zero time.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

// redactionKey returns the id of the key with which the bridge redacts; "" where it redacts
// nothing.
func (r *replica) redactionKey() string {
	for _, u := range r.informers.all() {
		opts := u.Config().Parse
		opts.Type = u.Config().Type
		if id := opts.KeyID(); id != "" {
			return id
		}
	}
	return ""
}

// otherKey returns why values would look changed after a takeover by this standby; "" when they
// would not. It does not prevent a takeover, which matters more.
func (r *replica) otherKey() string {
	own := r.redactionKey()
	r.mu.Lock()
	leader := r.progress.RedactionKey
	r.mu.Unlock()
	if own == "" || leader == "" || own == leader || !r.follows() {
		return ""
	}
	return fmt.Sprintf("this replica redacts with key %s and the leader with %s, "+
		"so every redacted value would look changed after a takeover: "+
		"give all replicas one redaction.keyFile", own, leader)
}

// unsynced returns why another replica should lead rather than this one; "" for no reason. Where no
// leader has reported anything, all are alike.
func (r *replica) unsynced() string {
	r.mu.Lock()
	read, err := !r.readAt.IsZero(), r.readErr
	r.mu.Unlock()
	switch {
	case !read && err != nil:
		return err.Error()
	case !r.leaderReported():
		return ""
	}
	for _, why := range r.reasons(r.unitUnready) {
		return why.String()
	}
	return ""
}
