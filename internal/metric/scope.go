package metric

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Scope is a Registerer that remembers what is registered through it, so that an informer or a sink
// that stops takes its metrics with it: one that starts again under the same name registers the
// same. What is registered before Begin is held back until then: a sink can be made while the one
// that it replaces still runs. Its methods may be called concurrently. A nil Scope begins and ends,
// and has nothing.
//
// What was held back is registered as one collector. A collector of its own for each metric, with
// the labels of the Scope in its descriptor, took 18 KB for each resource.
type Scope struct {
	to    prometheus.Registerer
	mu    sync.Mutex // guards all below
	begun bool
	held  group
	later []prometheus.Collector // registered since Begin
}

// group is several collectors as one.
type group []prometheus.Collector

// Describe implements prometheus.Collector.
func (g *group) Describe(to chan<- *prometheus.Desc) {
	for _, c := range *g {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (g *group) Collect(to chan<- prometheus.Metric) {
	for _, c := range *g {
		c.Collect(to)
	}
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
	if !begun {
		s.held = append(s.held, c)
	}
	s.mu.Unlock()
	if !begun {
		return nil
	}
	if err := s.to.Register(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, c)
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

// Unregister unregisters what was registered since Begin. End forgets what was remembered.
func (s *Scope) Unregister(c prometheus.Collector) bool { return s.to.Unregister(c) }

// Begin registers what was held back.
func (s *Scope) Begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.begun = true
	empty := len(s.held) == 0
	s.mu.Unlock()
	if !empty { // the registry would not check a collector that describes nothing
		s.to.MustRegister(&s.held)
	}
}

// End unregisters everything.
func (s *Scope) End() {
	if s == nil {
		return
	}
	s.mu.Lock()
	later, registered := s.later, s.begun && len(s.held) > 0
	s.later, s.begun = nil, false
	s.mu.Unlock()
	for _, c := range later {
		s.to.Unregister(c)
	}
	if registered {
		s.to.Unregister(&s.held)
	}
}
