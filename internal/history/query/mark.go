package query

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Type and reason of the mark for what a stream had removed before an archiver read it.
const (
	TypeRemoved   = "dev.kubebridge.informer.gap"
	ReasonRemoved = "removed"
)

// Removal is the data of such a mark.
type Removal struct {
	Reason string `json:"reason"`
	Lane   string `json:"lane"`
	// From and To are the offsets of the first and the last message that is missing.
	From string `json:"from"`
	To   string `json:"to"`
	// Since and Until are when the messages before and behind were stored.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Mark is something that the stream says about itself.
type Mark struct {
	Unit  *record.Unit
	Event event.Event
	Time  time.Time
	// Reason of a gap: "expired", "dropped", "forgotten", "removed", and others.
	Reason string
	// From and To are resourceVersions, Since and Until are the times between which something may
	// be missing, where that is known.
	From, To     string
	Since, Until time.Time
}

// Marks are those of a unit from one time to another, and of the archive itself, in their order. A
// zero time is no limit. The error is the last element.
func (h Coverage) Marks(u *record.Unit, since, until time.Time) iter.Seq2[*Mark, error] {
	return func(yield func(*Mark, error) bool) {
		for _, other := range h.db.Units() {
			if other != u && (other.Source != record.ArchiveSource || u.Source == record.ArchiveSource) {
				continue
			}
			if !h.marks(other, since, until, yield) {
				return
			}
		}
	}
}

// marks reports whether to continue.
func (h Coverage) marks(u *record.Unit, since, until time.Time, yield func(*Mark, error) bool) bool {
	prefix := keys.InUnit(nil, keys.SpaceMark, u.Number)
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		yield(nil, h.db.ReadError(err))
		return false
	}
	defer it.Close()
	var synced time.Time
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			var m *Mark
			if m, err = ReadMark(u, value); err == nil {
				if err := h.addSince(m, synced); err != nil {
					yield(nil, h.db.ReadError(err))
					return false
				}
				if m.Event.Op == event.Synced {
					synced = m.Time
				}
				begins, ends := m.span()
				if !since.IsZero() && ends.Before(since) || !until.IsZero() && begins.After(until) {
					continue
				}
				if !yield(m, nil) {
					return false
				}
				continue
			}
		}
		yield(nil, h.db.ReadError(err))
		return false
	}
	if err := it.Error(); err != nil {
		yield(nil, h.db.ReadError(err))
		return false
	}
	return true
}

// ReadMark reads a mark of a unit. Its Since is not known for a gap of a bridge.
func ReadMark(u *record.Unit, document []byte) (*Mark, error) {
	e, err := record.ReadMark(document)
	if err != nil {
		return nil, err
	}
	m := &Mark{Unit: u, Event: e, Time: record.TimeOf(&e)}
	var data Removal
	if json.Unmarshal(e.InformerData(), &data) == nil { // another payload has no reason
		m.Reason, m.From, m.To, m.Since, m.Until = data.Reason, data.From, data.To, data.Since,
			data.Until
	}
	return m, nil
}
