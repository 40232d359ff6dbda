package app

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/metric"
)

// starting is what the admin server shows: at first why there is nothing to show yet, then the
// pipeline. Its methods may be called concurrently.
type starting struct {
	version  string   // of the program
	outcome  *outcome // of reloads
	mu       sync.Mutex
	pipeline *assembled // guarded by mu; nil until it is assembled
	why      string     // guarded by mu
	began    time.Time
}

func newStarting(version string, o *outcome) *starting {
	return &starting{
		version: version, outcome: o, why: "the API server has not been asked yet",
		began: time.Now().UTC(),
	}
}

// waits says why the start has to wait.
func (s *starting) waits(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = err.Error()
}

// runs is called when there is a pipeline.
func (s *starting) runs(p *assembled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pipeline = p
}

func (s *starting) get() (p *assembled, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipeline, s.why
}

// Reasons is why the bridge is not ready, as the admin server shows it.
func (s *starting) reasons() []admin.Reason {
	p, why := s.get()
	if p == nil {
		return []admin.Reason{{What: "API server", Message: why}}
	}
	return p.reasons()
}

// ProcessStatus is what /status shows: what the process is, whether it is ready, and where the
// pipeline stands once there is one.
type ProcessStatus struct {
	Version string         `json:"version"`
	Started time.Time      `json:"started"`
	Ready   bool           `json:"ready"`
	Reasons []admin.Reason `json:"reasons"` // of not being ready
	// Starting is why there is no pipeline yet.
	Starting string `json:"starting,omitempty"`
	*bridge.Status
	// Reload is how the last attempt to read the configuration again went.
	Reload *ReloadStatus `json:"reload,omitempty"`
}

// status is where the process stands.
func (s *starting) status() ProcessStatus {
	reasons := s.reasons()
	if reasons == nil {
		reasons = []admin.Reason{} // a list for whoever reads it
	}
	r := ProcessStatus{
		Version: s.version, Started: s.began, Ready: len(reasons) == 0,
		Reasons: reasons,
	}
	p, why := s.get()
	if p == nil {
		r.Starting = why
		return r
	}
	r.Status, r.Reload = new(p.bridge.Status()), s.outcome.status()
	return r
}

// close closes the pipeline's state, if there is one, after nobody asks for its status any more.
func (s *starting) close() error {
	p, _ := s.get()
	if p == nil {
		return nil
	}
	return p.Close()
}

// registerReadiness shows as a metric what /readyz reports.
func (s *starting) registerReadiness(registry prometheus.Registerer) {
	metric.With(registry).FlagFunc("bridge_admin_ready",
		"1 when /readyz answers 200, 0 when it names reasons not to.",
		func() bool { return len(s.reasons()) == 0 })
}
