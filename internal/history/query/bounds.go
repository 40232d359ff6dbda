package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// LateChange is a change that became known late: it was made between two times, so between these an
// object may have been what it was before the change, or what it became.
type LateChange struct {
	NotBefore time.Time `json:"notBefore"`
	Time      time.Time `json:"time"`
	Version   string    `json:"resourceVersion"`
	Operation event.Op  `json:"operation"`
}

func newLateChange(e *event.Event) *LateChange {
	return &LateChange{
		NotBefore: e.NotBefore, Time: record.TimeOf(e), Version: e.ResourceVersion, Operation: e.Op,
	}
}

// String says what it is, for who has asked about a time between.
func (d *LateChange) String() string {
	return string(d.Operation) + " between " + ShowTime(d.NotBefore) + " and " + ShowTime(d.Time) +
		" (resourceVersion " + d.Version + ")"
}

// LateChange returns the change of an object because of which it may have been another one at a
// time than what At returns; nil for none, and for a resourceVersion, which leaves no doubt. Of
// several changes it is the first one.
func (h Objects) LateChange(o *Object, p Point) (*LateChange, error) {
	if p.At.IsZero() {
		return nil, nil
	}
	r, err := newReader(h.db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	seq, found, err := r.lastAt(o, p)
	if err != nil {
		return nil, h.db.ReadError(err)
	}
	d, err := r.lateChange(o, seq, found, p.At)
	return d, h.db.ReadError(err)
}

// lateChange is LateChange behind a version, where there is one.
func (r *reader) lateChange(o *Object, seq keys.Sequence, found bool, at time.Time) (*LateChange, error) {
	prefix := o.prefix()
	key := bytes.Clone(prefix)
	if found {
		key = append(seq.Append(key), math.MaxUint8) // behind it
	}
	if !r.it.SeekGE(key) || !bytes.HasPrefix(r.it.Key(), prefix) {
		return nil, r.it.Error()
	}
	next, err := r.readVersion()
	if err != nil || next.Event.NotBefore.IsZero() || next.Event.NotBefore.After(at) {
		return nil, err
	}
	return newLateChange(&next.Event), nil
}

// IsUnwatched reports whether the notice is about an unwatched time. Nothing is
// missing of it: the watch was continued where it had stopped. What changed then became known late.
func (m *Notice) IsUnwatched() bool { return m.Event.Op == event.Progress && !m.Since.IsZero() }

// Unwatched returns the times around a point without a watch of objects of units in a
// namespace, "*" for all.
func (h Coverage) Unwatched(units []*record.Unit, namespace string, p Point) (list []*Notice, err error) {
	if p.At.IsZero() {
		return nil, nil
	}
	for _, u := range units {
		for m, err := range h.Notices(u, p.At, p.At) {
			if err != nil {
				return nil, err
			}
			isOf := m.Event.Namespace == "" || namespace == "*" || m.Event.Namespace == namespace
			if m.Unit == u && m.IsUnwatched() && isOf && m.Since.Before(p.At) && m.Until.After(p.At) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// LateUntil returns the time at which the last change of units became known that may have been made
// by a time; the zero time where none became known late.
func (h Coverage) LateUntil(units []*record.Unit, at time.Time) (until time.Time, err error) {
	if at.IsZero() {
		return until, nil
	}
	for _, u := range units {
		prefix := keys.InUnit(nil, keys.SpaceLate, u.Number)
		it, err := h.db.NewIter(&pebble.IterOptions{
			LowerBound: prefix, UpperBound: keys.Late(u.Number, keys.Seconds(at)+1),
		})
		if err != nil {
			return until, h.db.ReadError(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			value, valueErr := it.ValueAndErr()
			if err = valueErr; err == nil && len(value) != 4 {
				err = record.ErrUnreadable
			}
			if err != nil {
				break
			}
			if end := time.Unix(int64(binary.BigEndian.Uint32(value)), 0); end.After(at) && end.After(until) {
				until = end
			}
		}
		if err := cmp.Or(err, it.Error(), it.Close()); err != nil {
			return until, h.db.ReadError(err)
		}
	}
	return until, nil
}

// Arrivals returns the first versions of the objects that a state does not have, and that may have
// existed by then: those whose creation became known late, which is their LateChange. The error is
// the last element.
func (h Objects) Arrivals(q StateQuery) iter.Seq2[*Version, error] {
	if q.LateUntil.IsZero() || len(q.Units) == 0 {
		return func(func(*Version, error) bool) {}
	}
	isWanted := func(u *record.Unit) bool { return slices.Contains(q.Units, u) }
	// A second more: times of the API server are whole seconds.
	entries := Timeline(h).Entries(q.Units[0].Cluster(), q.Namespace, q.At.At, q.LateUntil.Add(time.Second), isWanted)
	return func(yield func(*Version, error) bool) {
		for e, err := range entries {
			isLate := err == nil && e.Event.Op == event.Added && !e.Event.NotBefore.IsZero() &&
				!e.Event.NotBefore.After(q.At.At) && e.Time.After(q.At.At) &&
				(q.Only == "" || q.Only == e.Event.Name)
			if err == nil && !isLate {
				continue
			}
			var v *Version
			if err == nil {
				o := &Object{e.Unit, e.Event.Namespace, e.Event.Name}
				if v, err = StoredVersion(h.db, o, e.seq); err == nil && v == nil {
					continue // retention has removed it
				}
			}
			if err == nil {
				v.LateChange = newLateChange(&v.Event)
			}
			if !yield(v, h.db.ReadError(err)) || err != nil {
				return
			}
		}
	}
}
