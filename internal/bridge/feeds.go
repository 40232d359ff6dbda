package bridge

import (
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/pipeline"
	"github.com/kubebridge/bridge/internal/standby"
)

// Replicas get a changed configuration one after the other, and one may have to take over in
// between. So the leader reports which sinks it feeds, and its progress is about these only.

// progressFor is the leader's progress of a pipeline for one of its sinks: nothing for a sink that
// the leader does not feed. Events for that one stay pending here.
func (r *replica) progressFor(u *pipeline.Pipeline, sinkKey string) standby.Unit {
	p, ok := r.progressOf(u)
	if !ok || !r.feeds(u.Config().Informer, sinkKey, true) {
		return standby.Unit{}
	}
	if r.isDoubtful(u, &p) {
		return standby.Unit{}
	}
	return p.Of(sinkKey)
}

// doubtPatience is how long progress may be far ahead of a pipeline's own watch before that is
// reported: a replica that starts again catches up within seconds.
const doubtPatience = time.Minute

// isDoubtful reports whether the leader's progress of a unit is too far ahead to be believed.
func (r *replica) isDoubtful(u *pipeline.Pipeline, p *standby.Unit) bool {
	seen := u.Reader().Status().Version
	doubtful := p.IsFarAheadOf(seen)
	r.mu.Lock()
	since, known := r.doubtful[u.Name()]
	warn := false
	switch {
	case !doubtful:
		delete(r.doubtful, u.Name())
	case !known:
		r.doubtful[u.Name()] = time.Now()
	case !since.IsZero() && time.Since(since) >= doubtPatience:
		r.doubtful[u.Name()], warn = time.Time{}, true // once
	}
	r.mu.Unlock()
	if warn {
		r.log.Warn("the leader's progress of a resource is far ahead of this replica's own watch, "+
			"and is not believed: "+
			"has somebody else written to the Lease?",
			"unit", u.Name(), "delivered", p.Delivered, "seen", seen)
	}
	return doubtful
}

// feeds reports whether the leader, or the one before this replica, sends an informer's changes to
// a sink. unknown is the answer where it has not reported.
func (r *replica) feeds(informer, key string, unknown bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress.Feeds == nil {
		return unknown
	}
	return slices.Contains(r.progress.Feeds[informer], key)
}

// tellsOf reports whether the leader has this pipeline, whatever it selects.
func (r *replica) tellsOf(unit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.progress.Units[unit]
	return ok
}
