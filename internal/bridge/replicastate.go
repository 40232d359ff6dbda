package bridge

import "fmt"

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

// replicaEvent is what happens to a replica.
type replicaEvent int

const (
	progressRead  replicaEvent = iota // once, at the start
	elected                           // it has the lease
	progressTaken                     // the Lease with the progress is its own
	takenInVain                       // it was not, for takePatience lease durations
	superseded                        // another replica has taken the Lease with the progress
	stopped                           // everything read was sent, or waits on disk
)

// next returns the state after an event. It panics for an event that can't happen in this state.
func (s replicaState) next(e replicaEvent) replicaState {
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
	r.state = r.state.next(e)
}

func (r *replica) is(s replicaState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == s
}

// follows reports whether another replica is to publish. It is false for a bridge that has no
// others.
func (r *replica) follows() bool { return r != nil && !r.is(leading) }
