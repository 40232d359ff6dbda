package publisher

import (
	"fmt"
	"sync"
	"time"
)

// stalledAfter is how long a lane fails before it counts as stalled. An election takes less.
const stalledAfter = 10 * time.Second

// stalledLanes has the lanes that have failed since their last progress. While one has for
// stalledAfter, the sink stores nothing of some objects, although its broker answers.
type stalledLanes struct {
	mu    sync.Mutex
	lanes map[*lane]*stall // guarded by mu
}

type stall struct {
	name  string
	since time.Time // of the first failure
	err   error     // of the last one
}

// failed records a failure of a lane.
func (s *stalledLanes) failed(l *lane, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		s.lanes = map[*lane]*stall{}
	}
	in := s.lanes[l]
	if in == nil {
		in = &stall{name: l.name, since: time.Now()}
		s.lanes[l] = in
	}
	in.err = err
}

// progressed records that items of a lane are settled, or that it is empty.
func (s *stalledLanes) progressed(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lanes, l)
}

// first returns why the lane that has failed for longest stores nothing; nil when none is stalled.
func (s *stalledLanes) first() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *stall
	stalled := 0
	for _, in := range s.lanes {
		if time.Since(in.since) < stalledAfter {
			continue
		}
		if stalled++; oldest == nil || in.since.Before(oldest.since) {
			oldest = in
		}
	}
	if oldest == nil {
		return nil
	}
	return fmt.Errorf("nothing of %s is stored since %s: %w", name(stalled, oldest),
		oldest.since.Format(time.RFC3339), oldest.err)
}

// name names the stalled lanes: the first, and how many others there are.
func name(stalled int, first *stall) string {
	if stalled == 1 {
		return first.name
	}
	return fmt.Sprintf("%s and %d others", first.name, stalled-1)
}
