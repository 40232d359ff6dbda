package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

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
	// LateUntil is as Coverage.LateUntil returns it: where it is set, versions of the answer have
	// their LateChange, and Objects.Arrivals has what may have come.
	LateUntil time.Time
	// By selects the objects with a value of an index, and reads no others; nil for all.
	By *ByIndex
	// Only is the name of the only object that is wanted, "" for all.
	Only string
	// Behind leaves out the objects up to this one of each resource, in the order of the answer;
	// nil for none. Its Unit does not matter.
	Behind *Object
}

// State returns every object that lived at a point, with the version that it had: resource by
// resource, each in the order of namespaces and names. It is as of one moment of the history.
// Memory does not grow with the answer. A version may be read until the next one is asked for. The
// error is the last element.
func (h Objects) State(q StateQuery) iter.Seq2[*Version, error] {
	return func(yield func(*Version, error) bool) {
		first, err := newReader(h.db)
		if err != nil {
			yield(nil, err)
			return
		}
		defer first.Close()
		s := stateWalk{StateQuery: q, now: first, yield: yield}
		if err := s.run(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// stateWalk is one answer.
type stateWalk struct {
	StateQuery
	now   *reader // what others are cloned from
	yield func(*Version, error) bool
}

func (s *stateWalk) run() error {
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
		hasMore, err := s.resource(units[:n])
		if err != nil || !hasMore {
			return err
		}
		units = units[n:]
	}
	return nil
}

// resource yields the objects of one resource, which several informers may have. It reports whether
// to continue.
func (s *stateWalk) resource(units []*record.Unit) (hasMore bool, err error) {
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
		at := firstNames(walks)
		if at == nil {
			return true, nil
		}
		v, err := s.version(walks, at)
		if err != nil {
			return false, err
		}
		if v != nil && (s.By == nil || s.By.has(v)) && !s.yield(v, nil) {
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

// firstNames returns the lowest names at which walks are, nil at the end of all.
func firstNames(walks []*liveWalk) (names []byte) {
	for _, w := range walks {
		if w.names != nil && (names == nil || bytes.Compare(w.names, names) < 0) {
			names = w.names
		}
	}
	return names
}

// version returns the version of the object at which walks are, nil where it did not live. Of
// several informers the one with the newest version is right: an object that left the selection of
// one may have come into that of another with the same version.
func (s *stateWalk) version(walks []*liveWalk, names []byte) (*Version, error) {
	var best *liveWalk
	var newest keys.Sequence
	var at *Object
	for _, w := range walks {
		if !bytes.Equal(w.names, names) && s.By == nil { // another informer may have no such value
			continue
		}
		o, err := w.object(names)
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
	var d *LateChange
	if !s.LateUntil.IsZero() {
		var err error
		if d, err = best.r.lateChange(at, newest, true, s.At.At); err != nil {
			return nil, err
		}
	}
	v, err := best.r.atSequence(at.Unit, at.Namespace, at.Name, newest)
	if v != nil {
		v.LateChange = d
	}
	return v, err
}

// UnlistedUnit is a unit of which no list had ended at a point: objects may be missing that lived
// then.
type UnlistedUnit struct {
	Unit *record.Unit
	// Until is when its first list ended, or zero when none has.
	Until time.Time
}

// UnlistedReport is such a unit as JSON.
type UnlistedReport struct {
	Resource string    `json:"resource"`
	Informer string    `json:"informer"`
	Until    time.Time `json:"until,omitzero"`
}

// Report returns the unit as JSON.
func (u *UnlistedUnit) Report() UnlistedReport {
	return UnlistedReport{u.Unit.GroupResource(), u.Unit.Informer, u.Until}
}

// Warning is for the reader of a state.
func (u *UnlistedUnit) Warning() string {
	when := "no list of them has ended"
	if !u.Until.IsZero() {
		when = "the first list of them ended at " + ShowTime(u.Until)
	}
	return fmt.Sprintf("this answer may be incomplete: %s of informer %s: %s", u.Unit.GroupResource(),
		u.Unit.Informer, when)
}

// UncertainState says what may be wrong in a state: the holes at the point, those before it that no
// list had healed by then, and the units of which no list had ended. Namespace is as in StateQuery.
func (h Coverage) UncertainState(q StateQuery) (holes []*Notice, unlisted []UnlistedUnit, err error) {
	seen := map[string]bool{}
	for _, u := range q.Units {
		lists := map[Scope]listTimes{}
		var found []*Notice
		for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
			if err != nil {
				return nil, nil, err
			}
			isList := m.Event.Op == event.Synced
			if m.Event.Namespace != "" && q.Namespace != "*" && m.Event.Namespace != q.Namespace {
				continue
			}
			of := lists[m.Scope()]
			if isList && of.first.IsZero() {
				of.first = m.Time
			}
			if isList && m.isUpTo(q.At) && m.Time.After(of.last) {
				of.last = m.Time
			}
			if m.Unit == u && m.Event.AboutInformer() {
				lists[m.Scope()] = of
			}
			if m.IsHole() && m.covers(q.At) && !seen[m.Event.ID] {
				seen[m.Event.ID] = true
				holes = append(holes, m)
				continue
			}
			if m.isUpTo(q.At) && m.IsHole() && !seen[m.Event.ID] {
				found = append(found, m)
			}
		}
		for _, m := range found {
			if !m.isHealed(lists[m.Scope()].last) {
				seen[m.Event.ID] = true
				holes = append(holes, m)
			}
		}
		if isListed, until := areListed(lists); !isListed {
			unlisted = append(unlisted, UnlistedUnit{u, until})
		}
	}
	return holes, unlisted, nil
}

// listTimes are when the first list of a scope ended, and the last one up to a point.
type listTimes struct{ first, last time.Time }

// areListed reports whether a list had ended, of one namespace at least, and there of all shards of
// one count. Else it returns when the first one had, zero for never.
func areListed(lists map[Scope]listTimes) (isListed bool, until time.Time) {
	type group struct {
		namespace string
		shards    int
	}
	missing := map[group]bool{}
	ends := map[group]time.Time{}
	for scope, of := range lists {
		g := group{scope.Namespace, scope.Shard.Count}
		missing[g] = missing[g] || of.last.IsZero()
		if end, isKnown := ends[g]; !isKnown || of.first.After(end) && !end.IsZero() || of.first.IsZero() {
			ends[g] = of.first
		}
	}
	for g, isMissing := range missing {
		isListed = isListed || !isMissing
		if end := ends[g]; !end.IsZero() && (until.IsZero() || end.Before(until)) {
			until = end
		}
	}
	return isListed, until
}

// liveWalk goes through the names of a unit that may have lived at a point, in their order.
type liveWalk struct {
	r     *reader // of the versions
	unit  *record.Unit
	lists []*liveList
	names []byte // namespace and name of where it is, as keys have them; nil at the end
}

// liveList is one list of names: what may live now, or a block of finished lives.
type liveList struct {
	it     *pebble.Iterator
	head   int // how long the part of the keys before the names is, in SpaceIndex and SpaceAlive
	space  byte
	axis   byte
	number uint64 // at which a life must have been
	names  []byte
	// wants reports which entries of an index count; nil for lists of lives.
	wants func(keys.IndexSpan) bool
}

// newLiveWalk begins a walk, as of the moment of a reader.
func newLiveWalk(now *reader, u *record.Unit, q *StateQuery) (*liveWalk, error) {
	it, err := now.it.Clone(pebble.CloneOptions{})
	if err != nil {
		return nil, err
	}
	w := &liveWalk{unit: u}
	w.r = &reader{db: now.db, it: it, hints: map[uint32]uint64{}, reuses: true}
	if err := w.begin(now, q); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *liveWalk) begin(now *reader, q *StateQuery) error {
	names, from := []byte{}, []byte(nil)
	if q.Namespace != "*" {
		names = keys.AppendName(names, q.Namespace)
	}
	if behind := q.Behind; behind != nil {
		from = keys.AppendName(keys.AppendName(nil, behind.Namespace), behind.Name)
		from[len(from)-1]++ // behind its Separator
	}
	if q.Only != "" {
		w.names = keys.AppendName(names, q.Only)
		if bytes.Compare(w.names, from) < 0 {
			w.names = nil
		}
		return nil
	}
	if q.By != nil {
		prefix := binary.BigEndian.AppendUint32(q.By.prefix(w.unit.SourceNumber), w.unit.Number)
		l := &liveList{space: keys.SpaceIndex, wants: q.By.wants(q.At)}
		if err := w.add(now, l, prefix, names, from); err != nil {
			return err
		}
		return w.next()
	}
	axis, number := byte(keys.AxisVersion), q.At.Version
	switch {
	case q.At.IsZero():
		number = math.MaxUint64
	case !q.At.At.IsZero():
		axis, number = keys.AxisTime, uint64(keys.Seconds(q.At.At))
	}
	alive := &liveList{space: keys.SpaceAlive, axis: axis, number: number}
	if axis == keys.AxisVersion {
		era, _, err := w.r.eraOf(w.unit, number)
		if err != nil {
			return err
		}
		if era > 0 { // what began in an era before had other versions
			alive.number = math.MaxUint64
		}
	}
	if err := w.add(now, alive, keys.InUnit(nil, keys.SpaceAlive, w.unit.Number), names,
		from); err != nil {
		return err
	}
	if !q.At.IsZero() {
		if err := w.addLives(now, axis, number, names, from); err != nil {
			return err
		}
	}
	return w.next()
}

// addLives adds the blocks around a number that have something.
func (w *liveWalk) addLives(now *reader, axis byte, number uint64, names, from []byte) error {
	prefix := keys.Axis(w.unit.Number, axis)
	it, err := now.it.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{
		LowerBound: prefix,
		UpperBound: keys.After(prefix),
	}})
	if err != nil {
		return err
	}
	defer it.Close()
	for level := byte(0); level <= 64; level++ {
		block := keys.Block(w.unit.Number, axis, level, number)
		if !it.SeekGE(append(bytes.Clone(block), names...)) {
			break
		}
		if next := keys.LevelOf(it.Key()); next > level { // there is nothing of the levels between
			level = next - 1
			continue
		}
		if bytes.HasPrefix(it.Key(), append(bytes.Clone(block), names...)) {
			l := &liveList{space: keys.SpaceLife, axis: axis, number: number}
			if err := w.add(now, l, block, names, from); err != nil {
				return err
			}
		}
	}
	return it.Error()
}

// add adds a list: those keys behind a prefix that begin with names, not before from.
func (w *liveWalk) add(now *reader, l *liveList, prefix, names, from []byte) error {
	bounds := &pebble.IterOptions{LowerBound: append(bytes.Clone(prefix), names...)}
	bounds.UpperBound = keys.After(bounds.LowerBound)
	it, err := now.it.Clone(pebble.CloneOptions{IterOptions: bounds})
	if err != nil {
		return err
	}
	l.it, l.head = it, len(prefix)
	w.lists = append(w.lists, l)
	return l.read(it.SeekGE(append(bytes.Clone(prefix), from...)))
}

// read reads the name at the iterator, or the next one that fits.
func (l *liveList) read(ok bool) error {
	for ; ok; ok = l.it.Next() {
		value, err := l.it.ValueAndErr()
		if err != nil {
			return err
		}
		if l.wants != nil {
			names, isWanted, err := l.readEntry(value)
			if err != nil || isWanted {
				l.names = names
				return err
			}
			continue
		}
		var names []byte
		var from, until uint64
		if l.space == keys.SpaceLife {
			var isLife bool
			if names, from, until, isLife = keys.SplitLife(l.it.Key(), value); !isLife {
				return record.ErrUnreadable
			}
		} else {
			begin, ok := keys.ReadBegin(value)
			if !ok {
				return record.ErrUnreadable
			}
			names, from, until = l.it.Key()[l.head:], begin.Version, math.MaxUint64
			if l.axis == keys.AxisTime {
				from = uint64(begin.Second)
			}
		}
		if from <= l.number && l.number <= until {
			l.names = names
			return nil
		}
	}
	l.names = nil
	return l.it.Error()
}

// readEntry reads the entry of an index at the iterator.
func (l *liveList) readEntry(value []byte) (names []byte, isWanted bool, err error) {
	const unit = 4
	span, isSpan := keys.ReadIndexSpan(value)
	found, isKey := keys.SplitIndexed(l.it.Key()[l.head-unit:])
	if !isSpan || !isKey {
		return nil, false, record.ErrUnreadable
	}
	return found.Names, l.wants(span), nil
}

// next moves to the next name.
func (w *liveWalk) next() error {
	behind := w.names
	w.names = nil
	for _, l := range w.lists {
		for l.names != nil && behind != nil && bytes.Equal(l.names, behind) {
			if err := l.read(l.it.Next()); err != nil {
				return err
			}
		}
		if l.names != nil && (w.names == nil || bytes.Compare(l.names, w.names) < 0) {
			w.names = l.names
		}
	}
	w.names = bytes.Clone(w.names) // nil stays nil
	return nil
}

// object returns the walk's object of some names.
func (w *liveWalk) object(names []byte) (*Object, error) {
	namespace, rest, ok := keys.CutName(names)
	if !ok {
		return nil, record.ErrUnreadable
	}
	name, rest, ok := keys.CutName(rest)
	if !ok || len(rest) > 0 {
		return nil, record.ErrUnreadable
	}
	return &Object{w.unit, namespace, name}, nil
}

func (w *liveWalk) Close() {
	for _, l := range w.lists {
		_ = l.it.Close() // what went wrong was returned before
	}
	w.r.Close()
}
