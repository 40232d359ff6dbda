package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
)

// Source, type and reason of the mark for what a stream had removed before an archiver read it.
const (
	ArchiveSource = "/archive"
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
	Unit  *Unit
	Event event.Event
	Time  time.Time
	// Reason of a gap: "expired", "dropped", "forgotten", "removed", and others.
	Reason string
	// From and To are resourceVersions, Until is the time up to which something may be missing,
	// where that is known.
	From, To string
	Until    time.Time
}

// IsHole reports whether something may be missing because of what the mark says.
func (m *Mark) IsHole() bool { return m.Event.Op != event.Synced && m.Event.Op != event.Progress }

// What says in a few words what may be missing.
func (m *Mark) What() string {
	switch {
	case m.Event.Op == event.Quarantined:
		return "a version that could not be parsed"
	case m.Event.Op != event.Gap:
		return "an event of type " + m.Event.Type + " that names no version"
	case m.Reason == ReasonRemoved:
		return fmt.Sprintf("messages %s to %s, which the stream had removed before they were read", m.From, m.To)
	case m.Reason == "dropped":
		return fmt.Sprintf("dropped events, versions %s to %s", cmp.Or(m.From, "the first"), m.To)
	}
	return fmt.Sprintf("gap (%s), versions %s to %s", cmp.Or(m.Reason, "unknown"), cmp.Or(m.From, "the first"), m.To)
}

// Marks are those of a unit from one time to another, and of the archive itself, in their order. A
// zero time is no limit. The error is the last element.
func (db *DB) Marks(u *Unit, since, until time.Time) iter.Seq2[*Mark, error] {
	return func(yield func(*Mark, error) bool) {
		for _, other := range db.units.all() {
			if other != u && (other.Source != ArchiveSource || u.Source == ArchiveSource) {
				continue
			}
			if !db.marks(other, since, until, yield) {
				return
			}
		}
	}
}

// marks reports whether to go on.
func (db *DB) marks(u *Unit, since, until time.Time, yield func(*Mark, error) bool) bool {
	prefix := unitPrefix(nil, spaceMark, u.Number)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		yield(nil, db.readError(err))
		return false
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			var m *Mark
			if m, err = readMark(u, value); err == nil {
				ends := m.Time
				if m.Until.After(ends) {
					ends = m.Until
				}
				if !since.IsZero() && ends.Before(since) || !until.IsZero() && m.Time.After(until) {
					continue
				}
				if !yield(m, nil) {
					return false
				}
				continue
			}
		}
		yield(nil, db.readError(err))
		return false
	}
	if err := it.Error(); err != nil {
		yield(nil, db.readError(err))
		return false
	}
	return true
}

func readMark(u *Unit, document []byte) (*Mark, error) {
	e, err := event.ParseStructured(append([]byte{}, document...))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	m := &Mark{Unit: u, Event: e, Time: timeOf(&e)}
	var data Removal
	if json.Unmarshal(e.InformerData(), &data) == nil { // another payload has no reason
		m.Reason, m.From, m.To, m.Until = data.Reason, data.From, data.To, data.Until
	}
	return m, nil
}

// concerns reports whether a mark is about an object, as one of a version of another object is not.
func (m *Mark) concerns(o *Object) bool {
	key := m.Event.PartitionKey
	if m.Event.Op != event.Quarantined || !strings.Contains(key, "/") {
		return m.Event.Namespace == "" || m.Event.Namespace == o.Namespace
	}
	return key == o.Unit.GroupResource()+"/"+o.Namespace+"/"+o.Name
}

// isHealed reports whether a list that ends after the mark tells the state again, deletes included.
func (m *Mark) isHealed(synced time.Time) bool {
	switch m.Reason {
	case "expired", "rewound", "interrupted", "takeover", "unreadable":
		return m.Event.Op == event.Gap && m.Event.Source != ArchiveSource && synced.After(m.Time)
	}
	return false
}

// Holes are what may be missing of an object's versions from one time to another.
func (db *DB) Holes(o *Object, since, until time.Time) (holes []*Mark, err error) {
	for m, err := range db.Marks(o.Unit, since, until) {
		if err != nil {
			return nil, err
		}
		if m.IsHole() && m.concerns(o) {
			holes = append(holes, m)
		}
	}
	return holes, nil
}

// Uncertain are the holes because of which an object may have been another one at the second time:
// those that no list has healed by then.
func (db *DB) Uncertain(o *Object, since, until time.Time) (holes []*Mark, err error) {
	var synced time.Time
	for m, err := range db.Marks(o.Unit, since, until) {
		if err != nil {
			return nil, err
		}
		if m.Event.Op == event.Synced && m.Time.After(synced) {
			synced = m.Time
		}
	}
	holes, err = db.Holes(o, since, until)
	return slices.DeleteFunc(holes, func(m *Mark) bool { return m.isHealed(synced) }), err
}

// isUpTo reports whether a mark is of before a point. One of the archive has no version, and is of
// before any.
func (m *Mark) isUpTo(p Point) bool {
	if p.Version == 0 {
		return p.At.IsZero() || !m.Time.After(p.At)
	}
	n, err := strconv.ParseUint(m.Event.ResourceVersion, 10, 64)
	return err != nil || n <= p.Version
}

// HolesOf are what may be missing of the objects of units from one time to another.
func (db *DB) HolesOf(units []*Unit, since, until time.Time) (holes []*Mark, err error) {
	seen := map[string]bool{}
	for _, u := range units {
		for m, err := range db.Marks(u, since, until) {
			if err != nil {
				return nil, err
			}
			if m.IsHole() && !seen[m.Event.ID] {
				seen[m.Event.ID] = true
				holes = append(holes, m)
			}
		}
	}
	return holes, nil
}
