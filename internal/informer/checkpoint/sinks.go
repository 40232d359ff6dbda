package checkpoint

import (
	"bytes"

	"github.com/kubebridge/bridge/internal/store"
)

// Positioned says how a restart finds what a sink holds that no checkpoint knows of:
// *publisher.Publisher.
type Positioned interface {
	// Position is where the sink's log has to be read from. It is nil when there is nothing to say,
	// and what was saved before stays.
	Position() []byte
	// Recalled is what lies before it and may not be known either. Each result is a slice that does
	// not change.
	Recalled() []byte
}

// sink is one whose position goes with each commit. Its fields are owned by whoever commits.
type sink struct {
	name   string
	source Positioned
	saved  place
	taken  place // by the commit in progress
}

type place struct{ position, recalled []byte }

// write puts what has moved into a batch. It comes before the trackers hand out what is settled:
// what the position has passed was settled before it was asked for, and so is in this commit or an
// earlier one.
func (s *sink) write(batch *store.Batch) {
	s.taken = s.saved
	position := s.source.Position()
	if position == nil {
		return
	}
	first := s.saved.position == nil
	s.taken = place{position, s.source.Recalled()}
	if !bytes.Equal(s.taken.position, s.saved.position) {
		batch.SetSinkPosition(s.name, s.taken.position)
	}
	if first || !bytes.Equal(s.taken.recalled, s.saved.recalled) {
		batch.SetSinkRecalled(s.name, s.taken.recalled)
	}
}

// committed notes what the commit has saved.
func (s *sink) committed(err error) {
	if err == nil {
		s.saved = s.taken
	}
}
