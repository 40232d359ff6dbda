package testkit

import (
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Call is one call of Publish.
type Call struct {
	At       time.Time
	Messages int
}

// contract is what a session remembers of how it is used. What is not as sinks.Sink says fails the
// test, unless the process is dead.
type contract struct {
	isOpen   bool            // guarded by Broker.mu
	isClosed bool            // guarded by Broker.mu
	calls    []Call          // guarded by Broker.mu
	running  int             // guarded by Broker.mu: calls of Publish
	busy     map[string]bool // guarded by Broker.mu: lanes in flight
}

// Calls are the calls of Publish so far.
func (s *Session) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Closed reports whether Close was called after the last Open.
func (s *Session) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isClosed
}

func (s *Session) opens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = false
}

func (s *Session) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = true
}

func (s *Session) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (s.isClosed || s.running > 0) && !s.killed {
		s.t.Errorf("%s, Close: closed before %v, %d calls running", s.Name, s.isClosed, s.running)
	}
	s.isOpen, s.isClosed = false, true
}

func (s *Session) wantOpen(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOpen && !s.killed {
		s.t.Errorf("%s: %s was called on a sink that is not open", s.Name, method)
	}
}

// begin checks what a call of Publish may hold and how many may run.
func (s *Session) begin(batch []*sinks.Message) map[string]bool {
	s.wantOpen("Publish")
	if len(batch) == 0 {
		s.t.Errorf("%s: Publish was called with no messages", s.Name)
	}
	lanes, bytes := map[string]bool{}, 0
	for _, m := range batch {
		lane := s.lane(m.Event)
		if lanes[lane] && s.Unit == sinks.ByObject {
			s.t.Errorf("%s: two messages of %s in one call", s.Name, lane)
		}
		lanes[lane] = true
		bytes += len(m.Event.Data)
		if m.Err != nil {
			s.t.Errorf("%s: message %s comes with an answer: %v", s.Name, m.Event.ID, m.Err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.calls = append(s.calls, Call{time.Now(), len(batch)})
	switch l := s.Bounds; {
	case s.Unit == sinks.ByLane && len(lanes) > 1:
		s.t.Errorf("%s: messages of %d lanes in one call", s.Name, len(lanes))
	case l.Messages > 0 && len(batch) > l.Messages, l.Bytes > 0 && bytes > l.Bytes && len(batch) > 1:
		s.t.Errorf("%s: %d messages with %d bytes in one call, limits %+v", s.Name, len(batch), bytes, l)
	case l.Concurrency > 0 && s.running > l.Concurrency:
		s.t.Errorf("%s: %d calls at once, limit %d", s.Name, s.running, l.Concurrency)
	}
	for lane := range lanes {
		if s.busy[lane] {
			s.t.Errorf("%s: two messages of lane %s in flight", s.Name, lane)
		}
		s.busy[lane] = true
	}
	return lanes
}

func (s *Session) end(lanes map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	for lane := range lanes {
		delete(s.busy, lane)
	}
}
