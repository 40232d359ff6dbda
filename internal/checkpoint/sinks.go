package checkpoint

import (
	"bytes"

	"github.com/kubebridge/bridge/internal/store"
)

// Positioned is where a sink's log has to be read from after a crash: *publisher.Publisher.
type Positioned interface {
	// Position is nil when there is nothing to say, and what was saved before stays.
	Position() []byte
}

// sink is one whose position goes with each commit. Its fields are owned by whoever commits.
type sink struct {
	name   string
	source Positioned
	saved  []byte
	taken  []byte // by the commit that is going on
}

// Follow saves a sink's position with each commit from now on.
func (c *Committer) Follow(name string, source Positioned, saved []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = append(c.sinks, &sink{name: name, source: source, saved: saved})
}

// write puts the position into a batch, when it has moved. It comes before the trackers hand out what is settled: what the position has
// passed was settled before it was asked for, and so is in this commit or an earlier one.
func (s *sink) write(batch *store.Batch) {
	s.taken = s.source.Position()
	if s.taken != nil && !bytes.Equal(s.taken, s.saved) {
		batch.SetSinkPosition(s.name, s.taken)
	}
}

// committed notes what the commit has saved.
func (s *sink) committed(err error) {
	if err == nil && s.taken != nil {
		s.saved = s.taken
	}
	s.taken = nil
}
