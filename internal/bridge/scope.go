package bridge

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// scopedRegisterer remembers what is registered through it, so that a unit that stops can take its metrics with it: one that
// starts again under the same name registers the same.
type scopedRegisterer struct {
	prometheus.Registerer
	mu         sync.Mutex // guards collectors
	collectors []prometheus.Collector
}

// Register registers and remembers.
func (s *scopedRegisterer) Register(c prometheus.Collector) error {
	if err := s.Registerer.Register(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collectors = append(s.collectors, c)
	return nil
}

// MustRegister registers and remembers; it panics where Register fails.
func (s *scopedRegisterer) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

// end unregisters everything. A nil scope has nothing.
func (s *scopedRegisterer) end() {
	if s == nil {
		return
	}
	s.mu.Lock()
	list := s.collectors
	s.collectors = nil
	s.mu.Unlock()
	for _, c := range list {
		s.Unregister(c)
	}
}
