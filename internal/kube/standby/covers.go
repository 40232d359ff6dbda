package standby

import (
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
)

// Stand is where a replica stands to its leader, for one sink of one unit.
type Stand struct {
	// Progress is the leader's. Once this replica leads, it is the last of the leader before.
	Progress Unit
	// Ended: the leader has ended the unit, after everything was delivered.
	Ended bool
	// Leads: this replica publishes.
	Leads bool
}

// Change is what an entry of this replica's change log says of versions.
type Change struct {
	// Version of the API server up to which the leader must have delivered everything.
	Version resource.Version
	// Epoch of the server's history that Version is of: versions of different epochs can't be
	// compared.
	Epoch int
	// OfList is set in place of Version for what is about a whole list: only the list's end says as
	// of which version it is.
	OfList bool
	// Repeats: it is nothing new.
	Repeats bool
	// Key of the object that it is of; "" for none.
	Key resource.Key
	// Selection is the version of the Namespaces that this replica knew of by then; "" where none
	// are selected by their labels.
	Selection resource.Version
}

// History is how much of the server's history this replica has seen. Complete is not set during a
// list, nor before the first.
type History struct {
	From     resource.Version // since then nothing is missing
	Epoch    int
	Complete bool
}

// Covers reports whether a change has reached the sink by the leader, so that this replica does not
// send it.
func Covers(c *Change, s *Stand, h *History) bool {
	p := &s.Progress
	switch {
	case c.Repeats || s.Ended: // who follows leaves that to the leader
		return !s.Leads
	case p.Delivered == "" || c.Epoch > p.Epoch:
		return false
	case c.Selection != "" && !c.Selection.NotNewer(p.Selection):
		return false // the leader may not know yet that the object is selected, or is not
	case c.Epoch < p.Epoch:
		return true // before the leader listed what came after, it has delivered all of it
	case c.OfList:
		return h.Complete && h.Epoch == p.Epoch && h.From.NotNewer(p.Delivered)
	default:
		return c.Version.NotNewer(p.Delivered) || p.Front.has(c)
	}
}

func (f *Front) has(c *Change) bool {
	return f != nil && c.Key != "" && c.Version == f.Version &&
		slices.Contains(f.Objects, c.Key.Digest())
}
