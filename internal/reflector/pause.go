package reflector

import (
	"context"
	"sync"
)

// gate is where Run waits while the reflector is paused.
type gate struct {
	mu      sync.Mutex
	closed  bool
	changed chan struct{}      // closed and replaced when closed changes
	cut     context.CancelFunc // ends the running step; nil while there is none
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

// Pause stops reading: the running request is cancelled, and none is sent until Resume. What the
// API server has forgotten by then is a gap like any other. It may be called before Run, and more
// than once.
func (r *Reflector) Pause() { r.gate.set(true) }

// Resume ends a Pause: the reflector asks for the API server's version, and continues from its own.
func (r *Reflector) Resume() { r.gate.set(false) }

// Paused reports whether a Pause is in force.
func (r *Reflector) Paused() bool {
	closed, _ := r.gate.state()
	return closed
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	cut, changed := g.cut, g.changed
	same := g.closed == closed
	if !same {
		g.closed, g.changed = closed, make(chan struct{})
	}
	g.mu.Unlock()
	if same {
		return
	}
	close(changed)
	if closed && cut != nil {
		cut()
	}
}

func (g *gate) state() (closed bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed, g.changed
}

// enter returns a context for one step, which Pause ends, and a function that ends the step in any
// case. It waits while the gate is closed, after waiting was called; ok is false when ctx has
// ended.
func (g *gate) enter(
	ctx context.Context, waiting func(),
) (step context.Context, end func(), ok bool) {
	for ctx.Err() == nil {
		if step, end, ok = g.open(ctx); ok {
			return step, end, true
		}
		closed, changed := g.state()
		if !closed {
			continue
		}
		waiting()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil, nil, false
}

// open begins a step, unless the gate is closed.
func (g *gate) open(ctx context.Context) (step context.Context, end func(), ok bool) {
	step, cancel := context.WithCancel(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		cancel()
		return nil, nil, false
	}
	g.cut = cancel
	return step, func() {
		g.mu.Lock()
		g.cut = nil
		g.mu.Unlock()
		cancel()
	}, true
}

// cutStep ends the running step, if there is one.
func (g *gate) cutStep() {
	g.mu.Lock()
	cut := g.cut
	g.mu.Unlock()
	if cut != nil {
		cut()
	}
}
