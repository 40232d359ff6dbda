package ratelimit

import "sync"

// Signal says to one part, whatever it waits for, that another has found something. It belongs to
// whoever connects the two, so neither knows the other. A nil Signal is never set. All methods may
// be called concurrently.
type Signal struct {
	mu    sync.Mutex
	isSet bool   // guarded by mu
	wake  func() // guarded by mu; nil while it is not watched
}

// Set sets the signal, and wakes who watches it.
func (s *Signal) Set() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.isSet = true
	wake := s.wake
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Watch has wake called whenever the signal is set, until end is called: on the goroutine that sets
// it, so wake must not wait. Whoever watches looks at IsSet before it waits.
func (s *Signal) Watch(wake func()) (end func()) {
	if s == nil {
		return func() {}
	}
	s.watch(wake)
	return func() { s.watch(nil) }
}

func (s *Signal) watch(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = wake
}

// IsSet reports whether the signal was set since the last Reset.
func (s *Signal) IsSet() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isSet
}

// Reset is IsSet, and resets the signal.
func (s *Signal) Reset() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.isSet
	s.isSet = false
	return was
}
