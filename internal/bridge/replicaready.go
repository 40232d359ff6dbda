package bridge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

// notInSync says of each pipeline that could not take over without a gap why that is so.
func (r *replica) notInSync() []Reason { return r.reasons(r.unitBehind) }

func (r *replica) reasons(of func(*informer.Informer) string) (reasons []Reason) {
	for _, u := range r.pipelines.all() {
		if u.Draining() != informer.NotDraining {
			continue
		}
		if why := of(u); why != "" {
			reasons = append(reasons, Reason{Component: "informer " + u.Name(), Message: "standby: " + why})
		}
	}
	return reasons
}

// unitBehind returns why a pipeline could not take over without a gap; "" when it could.
func (r *replica) unitBehind(u *informer.Informer) string {
	p, found := r.progressOf(u)
	from, epoch, listed := u.Replica.History()
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
// takes it alone: they may not have the same file, or the leader's is refused.
const leaderFirst = 2 * time.Minute

// unitUnready is unitBehind, but for a pipeline that the leader's configuration does not have, or
// has with another selection. Such a pipeline begins with its list, whoever leads. Else a
// configuration that is rolled out would wait for itself.
func (r *replica) unitUnready(u *informer.Informer) string {
	why := r.unitBehind(u)
	if _, found := r.progressOf(u); why == "" || found || !r.leaderReported() {
		return why
	}
	if _, _, listed := u.Replica.History(); !listed {
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

// notReady is why a standby should not be relied on.
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

// age is how long ago something was; 0 for never.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

// redactionKey is the id of the key with which the bridge redacts; "" where it redacts nothing.
func (r *replica) redactionKey() string {
	for _, u := range r.pipelines.all() {
		opts := u.Config().Parse
		opts.Type = u.Config().Type
		if id := opts.KeyID(); id != "" {
			return id
		}
	}
	return ""
}

// otherKey is why values would look changed after a takeover by this standby; "" when they would
// not. It keeps this replica from nothing: a takeover matters more.
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

// unsynced returns why another replica should lead rather than this one; "" for nothing. Where no
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
