package informer

import "fmt"

// state is where a pipeline is in its life; the diagram is in doc.go.
type state int

const (
	created  state = iota // its stages are connected, and nothing runs
	running               // it reads
	draining              // it reads no more, and its listeners wait for the sinks
	detached              // its listeners have ended: all is settled, or is pending in their cursors
	ended                 // its last state is committed
)

// lifeEvent is what happens to a pipeline.
type lifeEvent int

const (
	begun    lifeEvent = iota
	stopped            // for a Drain
	returned           // everything is settled, or it was aborted, or has failed, or the bridge stops
	closed             // the last commit was written
)

// next returns the state after an event. It panics for an event that can't happen in this state.
func (s state) next(e lifeEvent) state {
	switch {
	case s == created && e == begun:
		return running
	case s == running && e == stopped:
		return draining
	case (s == running || s == draining) && e == returned:
		return detached
	case (s == draining || s == detached) && e == stopped: // for another reason
		return s
	case s == detached && e == closed:
		return ended
	}
	panic(fmt.Sprintf("pipeline: event %d in state %d", e, s))
}
