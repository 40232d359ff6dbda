package metric

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Scope is a Registerer that remembers what is registered through it, so that a pipeline or a sink
// that stops takes its metrics with it: one that starts again under the same name registers the
// same. What is registered before Begin is held back until then: a sink can be made while the one
// that it replaces still runs. Its methods may be called concurrently. A nil Scope begins and ends,
// and has nothing.
type Scope struct {
	to         prometheus.Registerer
	mu         sync.Mutex // guards all below
	begun      bool
	collectors []prometheus.Collector
}

// NewScope makes a Scope that has not begun, whose metrics have these labels. With a nil Registerer
// the metrics count, and nobody reads them.
func NewScope(to prometheus.Registerer, labels prometheus.Labels) *Scope {
	return &Scope{to: prometheus.WrapRegistererWith(labels, to)}
}

// Register registers and remembers.
func (s *Scope) Register(c prometheus.Collector) error {
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if begun {
		if err := s.to.Register(c); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collectors = append(s.collectors, c)
	return nil
}

// MustRegister registers and remembers; it panics where Register fails.
func (s *Scope) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister unregisters. End forgets what was remembered.
func (s *Scope) Unregister(c prometheus.Collector) bool { return s.to.Unregister(c) }

// Begin registers what was held back.
func (s *Scope) Begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	list := s.collectors
	s.begun = true
	s.mu.Unlock()
	s.to.MustRegister(list...)
}

// End unregisters everything.
func (s *Scope) End() {
	if s == nil {
		return
	}
	s.mu.Lock()
	list := s.collectors
	s.collectors = nil
	s.mu.Unlock()
	for _, c := range list {
		s.to.Unregister(c)
	}
}
