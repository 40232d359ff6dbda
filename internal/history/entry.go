package history

import (
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/diff"
)

// Entry is something that happened: a version of an object, or its end, with what it changed in
// short. Its event has no id, no uid and no data.
type Entry struct {
	*Version
	// HasBefore reports whether there is a version before. After the end of an object there is
	// none.
	HasBefore bool
	// Changes are fields that differ from the version before, at most 32, without long values. More
	// is how many others do.
	Changes   []diff.Change
	More      int
	heartbeat bool
}

// IsHeartbeat reports whether a change only says that somebody is alive.
func (e *Entry) IsHeartbeat() bool { return e.heartbeat && e.Event.Op == event.Updated }

// readEntry makes an entry with v of a value of the timeline; nil where it is an op alone.
func readEntry(v *Version, u *Unit, t *timelineEntry, value []byte) (*Entry, error) {
	if len(value) == 1 {
		return nil, nil
	}
	s, h, base, err := readSummary(value, t.seq)
	if err != nil {
		return nil, err
	}
	if err := v.read(u, t.namespace, t.name, t.seq, h, h.payload, base); err != nil {
		return nil, err
	}
	if !s.readFields(v.Event.Data) {
		return nil, errRecord
	}
	return newEntry(v, &s), nil
}

// newEntry is one with a version, of which it takes away what a summary does not have.
func newEntry(v *Version, s *summary) *Entry {
	v.form = s.form
	v.Event.ID, v.Event.UID, v.Event.Data = "", "", nil
	return &Entry{
		Version: v, HasBefore: s.flags&hasBefore != 0, Changes: s.changes, More: s.more,
		heartbeat: s.flags&isHeartbeat != 0,
	}
}

// summarized is the entry of a version that was read, as it would be with a summary.
func summarized(v, before *Version) *Entry {
	flags := byte(0)
	if before != nil {
		flags = hasBefore
	}
	s := summarize(v.Form(), flags, v.ChangesSince(before))
	return newEntry(v, &s)
}
