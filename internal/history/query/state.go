package query

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// StateQuery says which objects of a state are wanted.
type StateQuery struct {
	// Units have the objects. An object that several of them have is given once.
	Units []*record.Unit
	// Namespace of the objects; "*" for all and those in none, "" for those in none.
	Namespace string
	At        Point
	// Only is the name of the only object that is wanted, "" for all.
	Only string
	// Behind leaves out the objects up to this one of each resource, in the order of the answer;
	// nil for none. Its Unit does not matter.
	Behind *Object
}

// State is every object that lived at a point, with the version that it had: resource by resource,
// each in the order of namespaces and names. It is as of one moment of the history. Memory does not
// grow with the answer. A version may be read until the next one is asked for. The error is the
// last element.
func (h Objects) State(q StateQuery) iter.Seq2[*Version, error] {
	return func(yield func(*Version, error) bool) {
		first, err := newReader(h.db)
		if err != nil {
			yield(nil, err)
			return
		}
		defer first.Close()
		s := state{StateQuery: q, now: first, yield: yield}
		if err := s.run(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// state is one answer.
type state struct {
	StateQuery
	now   *reader // what others are cloned from
	yield func(*Version, error) bool
}

func (s *state) run() error {
	units := slices.SortedFunc(slices.Values(s.Units), func(a, b *record.Unit) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.GroupResource(), b.GroupResource()),
			cmp.Compare(a.Number, b.Number))
	})
	for len(units) > 0 {
		n := 1
		for n < len(units) && units[n].Source == units[0].Source &&
			units[n].GroupResource() == units[0].GroupResource() {
			n++
		}
		goOn, err := s.resource(units[:n])
		if err != nil || !goOn {
			return err
		}
		units = units[n:]
	}
	return nil
}

// resource gives the objects of one resource, which several informers may have. It reports whether
// to continue.
func (s *state) resource(units []*record.Unit) (goOn bool, err error) {
	var walks []*liveWalk
	defer func() {
		for _, w := range walks {
			w.Close()
		}
	}()
	for _, u := range units {
		w, err := newLiveWalk(s.now, u, &s.StateQuery)
		if err != nil {
			return false, err
		}
		walks = append(walks, w)
	}
	for {
		walks = slices.DeleteFunc(walks, func(w *liveWalk) bool {
			if w.names == nil {
				w.Close()
			}
			return w.names == nil
		})
		if len(walks) == 0 {
			return true, nil
		}
		at := slices.MinFunc(walks, func(a, b *liveWalk) int { return bytes.Compare(a.names, b.names) }).names
		v, err := s.version(walks, at)
		if err != nil {
			return false, err
		}
		if v != nil && !s.yield(v, nil) {
			return false, nil
		}
		for _, w := range walks {
			if bytes.Equal(w.names, at) {
				if err := w.next(); err != nil {
					return false, err
				}
			}
		}
	}
}

// version is that of the object at which walks are, nil where it did not live. Of several informers
// the one with the newest version is right: an object that left the selection of one may have come
// into that of another with the same version.
func (s *state) version(walks []*liveWalk, names []byte) (*Version, error) {
	var best *liveWalk
	var newest keys.Sequence
	var at *Object
	for _, w := range walks {
		if !bytes.Equal(w.names, names) {
			continue
		}
		o, err := w.object()
		if err != nil {
			return nil, err
		}
		seq, found, err := w.r.lastAt(o, s.At)
		if err != nil {
			return nil, err
		}
		if found && (best == nil || seq.Version > newest.Version ||
			seq.Version == newest.Version && newest.Deleted && !seq.Deleted) {
			best, newest, at = w, seq, o
		}
	}
	if best == nil || newest.Deleted {
		return nil, nil
	}
	return best.r.atSequence(at.Unit, at.Namespace, at.Name, newest)
}

// Unlisted is a unit of which no list had ended at a point: objects may be missing that lived then.
type Unlisted struct {
	Unit *record.Unit
	// Until is when its first list ended, or zero when none has.
	Until time.Time
}

// Warning is for the reader of a state.
func (u *Unlisted) Warning() string {
	when := "no list of them has ended"
	if !u.Until.IsZero() {
		when = "the first list of them ended at " + ShowTime(u.Until)
	}
	return fmt.Sprintf("this answer may be incomplete: %s of informer %s: %s", u.Unit.GroupResource(),
		u.Unit.Informer, when)
}

// UncertainState says what may be wrong in a state: the holes at the point, those before it that no
// list had healed by then, and the units of which no list had ended. Namespace is as in StateQuery.
func (h Coverage) UncertainState(q StateQuery) (holes []*Mark, unlisted []Unlisted, err error) {
	seen := map[string]bool{}
	for _, u := range q.Units {
		var listed, synced time.Time
		var found []*Mark
		for m, err := range h.Marks(u, time.Time{}, time.Time{}) {
			if err != nil {
				return nil, nil, err
			}
			isList := m.Event.Op == event.Synced
			if m.Event.Namespace != "" && q.Namespace != "*" && m.Event.Namespace != q.Namespace {
				continue
			}
			if isList && listed.IsZero() {
				listed = m.Time
			}
			if m.IsHole() && m.covers(q.At) && !seen[m.Event.ID] {
				seen[m.Event.ID] = true
				holes = append(holes, m)
				continue
			}
			if !m.isUpTo(q.At) {
				continue
			}
			if isList && m.Time.After(synced) {
				synced = m.Time
			}
			if m.IsHole() && !seen[m.Event.ID] {
				found = append(found, m)
			}
		}
		for _, m := range found {
			if !m.isHealed(synced) {
				seen[m.Event.ID] = true
				holes = append(holes, m)
			}
		}
		if synced.IsZero() {
			unlisted = append(unlisted, Unlisted{u, listed})
		}
	}
	return holes, unlisted, nil
}
