package bridge

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

// replicaState is where a replica is in its life; the diagram is in doc.go. A replica reads and
// writes its own state from joining on. It publishes only while it leads.
type replicaState int

const (
	joining   replicaState = iota // the leader's progress was not read yet
	following                     // another replica publishes, or none does
	taking                        // it has the lease, and takes over the Lease with the progress
	leading                       // it publishes
	replicaEnded
)

type replicaEvent int

const (
	progressRead  replicaEvent = iota // once, at the start
	elected                           // it has the lease
	progressTaken                     // the Lease with the progress is its own
	takenInVain                       // it was not, for takePatience lease durations
	superseded                        // another replica has taken the Lease with the progress
	stopped                           // everything read was sent, or waits on disk
)

// after returns the state after an event. It panics for an event that can't happen in this state.
func (s replicaState) after(e replicaEvent) replicaState {
	switch {
	case s == joining && e == progressRead:
		return following
	case s == following && e == elected:
		return taking
	case s == taking && e == progressTaken:
		return leading
	case s == taking && e == takenInVain, s == leading && e == superseded, e == stopped:
		return replicaEnded
	}
	panic(fmt.Sprintf("replica: event %d in state %d", e, s))
}

func (r *replica) happened(e replicaEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = r.state.after(e)
}

func (r *replica) is(s replicaState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == s
}

// follows reports whether another replica is to publish. It is false for a bridge that has no
// others.
func (r *replica) follows() bool { return r != nil && !r.is(leading) }

// progressOf returns the leader's progress of a unit; ok is false when there is none, or the leader
// selects something else.
func (r *replica) progressOf(u *informer.Informer) (p standby.Unit, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok = r.progress.Units[u.Name()]
	// Where a leader has selected something else since, objects that came back are published again,
	// however old they are: versions delivered before say nothing of them.
	if p.Scope != u.Config().ReplicaScope() ||
		r.state == leading && p.Selectors < u.Replica.Selectors() {
		return standby.Unit{}, false
	}
	return p, ok
}

// leaderReported reports whether any progress of a leader is known.
func (r *replica) leaderReported() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.progress.Units) > 0
}

// OthersLed reports whether another replica leads or has led.
func (r *replica) OthersLed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.led
}

// Succeeds reports whether others have published a unit's changes before, and up to which version
// at least.
func (r *replica) Succeeds(u *informer.Informer) (from resource.Version, led bool) {
	p, ok := r.progressOf(u)
	return p.Delivered, ok || r.OthersLed() && !r.leaderReported()
}

// Replicas get a changed configuration one after the other, and one may have to take over in
// between. So the leader reports which sinks it feeds, and its progress is about these only.

// progressFor returns the leader's progress of a unit for one of its sinks: nothing for a sink that
// the leader does not feed. Events for that sink stay pending here.
func (r *replica) progressFor(u *informer.Informer, sinkKey string) standby.Unit {
	p, ok := r.progressOf(u)
	if !ok || !r.feeds(u.Config().Informer, sinkKey, true) {
		return standby.Unit{}
	}
	if r.isDoubtful(u, &p) {
		return standby.Unit{}
	}
	return p.Of(sinkKey)
}

// doubtPatience is how long progress may be far ahead of a unit's own watch before that is
// reported: a replica that starts again catches up within seconds.
const doubtPatience = time.Minute

// isDoubtful reports whether the leader's progress of a unit is too far ahead to be believed.
func (r *replica) isDoubtful(u *informer.Informer, p *standby.Unit) bool {
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
		r.log.Warn("the leader's progress of a resource is far ahead of this replica's own "+
			"watch, and is not believed: has somebody else written to the Lease?",
			"unit", u.Name(), "delivered", p.Delivered, "seen", seen)
	}
	return doubtful
}

// feeds reports whether the leader, or the one before this replica, sends an informer section's
// changes to a sink. unknown is the answer where it has not reported.
func (r *replica) feeds(informer, key string, unknown bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress.Feeds == nil {
		return unknown
	}
	return slices.Contains(r.progress.Feeds[informer], key)
}

// leaderRuns reports whether the leader has this unit, whatever it selects.
func (r *replica) leaderRuns(unit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.progress.Units[unit]
	return ok
}
