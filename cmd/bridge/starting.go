package main

import (
	"sync"

	"github.com/kubebridge/bridge/internal/admin"
	"github.com/kubebridge/bridge/internal/bridge"
)

// starting is what the admin server shows: at first why there is nothing to show yet, then the pipeline. Its methods may be called
// concurrently.
type starting struct {
	outcome  *outcome // of reloads
	mu       sync.Mutex
	pipeline *pipeline // guarded by mu; nil until it is assembled
	why      string    // guarded by mu
}

func newStarting(o *outcome) *starting {
	return &starting{outcome: o, why: "the API server has not been asked yet"}
}

// waits says why the start has to wait.
func (s *starting) waits(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = err.Error()
}

// runs is called when there is a pipeline.
func (s *starting) runs(p *pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pipeline = p
}

func (s *starting) get() (p *pipeline, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipeline, s.why
}

// reasons is why the bridge is not ready, as the admin server shows it.
func (s *starting) reasons() []admin.Reason {
	p, why := s.get()
	if p == nil {
		return []admin.Reason{{What: "API server", Message: why}}
	}
	return p.reasons()
}

// status is what /status shows.
func (s *starting) status() any {
	p, why := s.get()
	if p == nil {
		return map[string]string{"starting": why}
	}
	return struct {
		bridge.Status
		// Reload is how the last attempt to read the configuration again went.
		Reload *reloadStatus `json:"reload,omitempty"`
	}{p.Status(), s.outcome.status()}
}

// close closes the pipeline's state, if there is one, after nobody asks for its status any more.
func (s *starting) close() error {
	p, _ := s.get()
	if p == nil {
		return nil
	}
	return p.Close()
}
