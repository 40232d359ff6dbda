package publisher

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrStopped is returned by Add and Drain when Run has ended.
var ErrStopped = errors.New("publisher has stopped")

// door lets callers use the sink until Run is about to close it.
type door struct {
	running atomic.Bool   // Run was called
	closed  chan struct{} // closed when no caller is admitted any more
	left    chan struct{} // closed when the last caller has left after that

	mu      sync.Mutex
	callers int  // guarded by mu: those who are inside
	closing bool // guarded by mu
}

func newDoor() door { return door{closed: make(chan struct{}), left: make(chan struct{})} }

// enter notes a caller that is about to use the sink; false when Run is about to close it.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	d.callers++
	return true
}

func (d *door) leave() {
	d.mu.Lock()
	d.callers--
	last := d.closing && d.callers == 0
	d.mu.Unlock()
	if last {
		close(d.left)
	}
}

// close admits no further caller, and waits for those who are inside: at most for one look-up each.
func (d *door) close() {
	d.mu.Lock()
	d.closing = true
	none := d.callers == 0
	d.mu.Unlock()
	close(d.closed)
	if !none {
		<-d.left
	}
}
