package query

import (
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
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
func readEntry(v *Version, u *record.Unit, t *keys.Entry, value []byte) (*Entry, error) {
	if len(value) == 1 {
		return nil, nil
	}
	s, h, base, err := record.ReadSummary(value, t.Seq)
	if err != nil {
		return nil, err
	}
	if err := v.read(u, t.Namespace, t.Name, t.Seq, h, h.Payload, base); err != nil {
		return nil, err
	}
	if !s.ReadFields(v.Event.Data) {
		return nil, record.ErrUnreadable
	}
	return newEntry(v, &s), nil
}

// newEntry is one with a version, of which it takes away what a summary does not have.
func newEntry(v *Version, s *record.Summary) *Entry {
	v.form = s.Form
	v.Event.ID, v.Event.UID, v.Event.Data = "", "", nil
	return &Entry{
		Version: v, HasBefore: s.Flags&record.HasBefore != 0, Changes: s.Changes, More: s.More,
		heartbeat: s.Flags&record.IsHeartbeat != 0,
	}
}

// summarized is the entry of a version that was read, as it would be with a summary.
func summarized(v, before *Version) *Entry {
	flags := byte(0)
	if before != nil {
		flags = record.HasBefore
	}
	s := record.Summarize(v.Form(), flags, v.ChangesSince(before))
	return newEntry(v, &s)
}
