package bridge

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// awaitLeader waits until the leader has a version of the configuration, or this replica leads. So
// what starts again starts at the leader first: its first list is the older one, and nothing that a
// standby has pending is older than what the leader has sent.
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

// configuration is the version of the configuration.
func (r *replica) configuration() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// changed says that the configuration has changed. A sink that the leader before has fed, and this
// one does not feed now, has ended in order: it needs no backfill when it comes back.
func (r *replica) changed(version string) {
	if r == nil {
		return
	}
	fed := map[string][]string{}
	for _, u := range r.pipelines.all() {
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

// needsBackfill are the sinks that a pipeline which starts again has not fed before, and that the
// leader, or the one before this replica, has. This replica has not kept for them what that one had
// not sent in the end. So the pipeline lists, and a gap reports it if this replica has to publish
// before the leader has passed the list.
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

// backfill sends all objects to sinks that a pipeline begins to feed, if this replica publishes
// before the leader has passed the pipeline's list. The gap says that something is missing; the
// list, which knows what other sinks have, sends only what differs.
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
