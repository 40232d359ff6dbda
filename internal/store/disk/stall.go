package disk

import "sync"

// stall counts the operations that wait for the disk.
type stall struct {
	changed func(error)
	// held while changed is called, so that its calls come one at a time and in order
	calling sync.Mutex

	mu      sync.Mutex
	waiting int           // guarded by mu
	why     error         // guarded by mu: of the first that waits
	begun   chan struct{} // guarded by mu: closed when something waits, replaced when nothing does
}

func (s *stall) enter(why error) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	s.waiting++
	first := s.waiting == 1
	if first {
		s.why = why
		close(s.begun)
	}
	s.mu.Unlock()
	if first && s.changed != nil {
		s.changed(why)
	}
}

func (s *stall) leave() {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	s.waiting--
	last := s.waiting == 0
	if last {
		s.why = nil
		s.begun = make(chan struct{})
	}
	s.mu.Unlock()
	if last && s.changed != nil {
		s.changed(nil)
	}
}

// Err is why something waits for the disk, nil when nothing does.
func (f *FS) Err() error {
	f.stall.mu.Lock()
	defer f.stall.mu.Unlock()
	return f.stall.why
}

// Stalled is closed as soon as something waits for the disk. When nothing does any more, the next
// call gives another channel.
func (f *FS) Stalled() <-chan struct{} {
	f.stall.mu.Lock()
	defer f.stall.mu.Unlock()
	return f.stall.begun
}
