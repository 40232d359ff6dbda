package bridge

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Scope is a Registerer that remembers what is registered through it, so that a unit or a sink that stops can take its metrics with it: one that
// starts again under the same name registers the same. What is registered before it begins is held back until then: a sink can be made while
// the one that it replaces still runs.
type Scope struct {
	to         prometheus.Registerer
	mu         sync.Mutex // guards all below
	begun      bool
	collectors []prometheus.Collector
}

// NewScope makes a Scope that has not begun; nil for a nil Registerer.
func NewScope(to prometheus.Registerer) *Scope {
	if to == nil {
		return nil
	}
	return &Scope{to: to}
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

// Unregister unregisters; what was remembered is forgotten at the end of the scope.
func (s *Scope) Unregister(c prometheus.Collector) bool { return s.to.Unregister(c) }

// begin registers what was held back. A nil scope has nothing.
func (s *Scope) begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	list := s.collectors
	s.begun = true
	s.mu.Unlock()
	s.to.MustRegister(list...)
}

// end unregisters everything. A nil scope has nothing.
func (s *Scope) end() {
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
