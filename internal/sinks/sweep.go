package sinks

import (
	"slices"
	"sync"
)

// A sink that holds the present state compares it with each list, and deletes what does not exist.
// How it walks through what it holds is its own; what is here is the same for all of them.

// Sweeps has how far sweeps have come, by an id: a call has a deadline, and the next one continues.
// The zero value is empty.
type Sweeps[T any] struct {
	mu   sync.Mutex
	byID map[string]T // guarded by mu
}

// Get returns the progress of a sweep; the zero value for one that has not begun.
func (s *Sweeps[T]) Get(id string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// Set saves the progress of a sweep.
func (s *Sweeps[T]) Set(id string, progress T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]T{}
	}
	s.byID[id] = progress
}

// Done forgets a sweep that has ended.
func (s *Sweeps[T]) Done(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// CurrentInformers returns the informers that feed the sink now; nil when they are not known.
func (e *Env) CurrentInformers() []string {
	if e.Informers == nil {
		return nil
	}
	return e.Informers()
}

// OtherInformer reports whether what an informer has stored is left alone by the sweep for the end
// of a list: the informer is another one that feeds the sink. informers are those that do; nil when
// they are not known.
func (m *Message) OtherInformer(informer string, informers []string) bool {
	return informer != m.Event.Informer &&
		(informers == nil || slices.Contains(informers, informer))
}
