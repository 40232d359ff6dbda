package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
)

// Lives say which names a state has to look at. Most names that were ever known have gone, so a
// walk over all of them would follow the age of the history, not the objects that lived.
//
// An object that may live has an entry in spaceAlive, with the lowest time and version that it may
// have lived at. With its end that becomes a finished life: an interval of times, and one of
// versions. An interval lies in the smallest block of 2^level numbers that holds all of it. So the
// intervals around a number are in one block of each level, and what lies in a block lived at its
// middle: the objects that lived then bound what a state reads at each level.
//
// A name may be there too often, never too seldom: a state looks at its versions. These hold:
//
//   - An object whose newest stored version is no delete has an entry in spaceAlive.
//   - Each version of an object lies in a finished life, or behind the beginning in spaceAlive.

// lifeBegin is the lowest time and version that an object may have lived at.
type lifeBegin struct {
	second  uint32
	version uint64
}

func (l lifeBegin) min(other lifeBegin) lifeBegin {
	return lifeBegin{min(l.second, other.second), min(l.version, other.version)}
}

// alive is what the writer knows of an object's entry in spaceAlive.
type alive struct {
	isThere bool
	begin   lifeBegin
}

// Axes of finished lives.
const (
	axisTime    = 't' // seconds -> until, and the interval of versions
	axisVersion = 'v' // versions -> until
)

// aliveKey is of an object whose prefix among the versions is given.
func aliveKey(object []byte) []byte {
	key := bytes.Clone(object)
	key[0] = spaceAlive
	return key
}

func axisPrefix(unit uint32, axis byte) []byte {
	return append(unitPrefix(make([]byte, 0, 64), spaceLife, unit), axis)
}

// blockPrefix is the beginning of the keys of a block of a level.
func blockPrefix(unit uint32, axis, level byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(axisPrefix(unit, axis), level), number>>level)
}

// Places in keys of finished lives: unit, axis, level, block, namespace, name, from.
const (
	levelAt = 1 + 4 + 1
	blockAt = levelAt + 1
	namesAt = blockAt + 8
)

// lifeKey is of a finished life. names is the rest of an object's prefix.
func lifeKey(unit uint32, axis byte, from, until uint64, names []byte) []byte {
	key := append(blockPrefix(unit, axis, byte(bits.Len64(from^until)), from), names...)
	return binary.BigEndian.AppendUint64(key, from)
}

// splitLife takes an entry apart.
func splitLife(key, value []byte) (names []byte, from, until uint64, ok bool) {
	if len(key) < namesAt+8 || len(value) < 8 {
		return nil, 0, 0, false
	}
	end := len(key) - 8
	return key[namesAt:end], binary.BigEndian.Uint64(key[end:]), binary.BigEndian.Uint64(value), true
}

// addToLives keeps what lived in order with a new version. isNewest: none of the object is behind
// it.
func (b *batch) addToLives(
	u *Unit, e *event.Event, seq sequence, object []byte, a alive, isNewest bool,
) (alive, error) {
	at := lifeBegin{unixSeconds(timeOf(e)), seq.version} // a version that is no number is 0
	if err := b.see(u, at.second); err != nil {
		return a, err
	}
	if !seq.deleted {
		begin := at
		if a.isThere {
			begin = a.begin.min(at)
		}
		if a.isThere && begin == a.begin {
			return a, nil
		}
		a = alive{true, begin}
		return a, b.setAlive(object, a)
	}
	if !a.isThere || !isNewest {
		return a, nil // what lives is as before
	}
	if err := b.addLife(u, object, seq, a.begin); err != nil {
		return a, err
	}
	return alive{}, b.setAlive(object, alive{})
}

// addLife stores a finished life. Times of one object do not go back; so that nothing depends on
// it, it ends with the latest time of its cluster. No version from that of the delete on names what
// was before.
func (b *batch) addLife(u *Unit, object []byte, end sequence, begin lifeBegin) error {
	names := object[1+4:]
	second, until := uint64(b.w.latest[u.SourceNumber]), max(end.version, end.entered)
	if !end.isNumber() {
		until = math.MaxUint64
	}
	value := binary.BigEndian.AppendUint64(nil, second)
	value = binary.BigEndian.AppendUint64(value, begin.version)
	value = binary.BigEndian.AppendUint64(value, until)
	if err := b.Set(lifeKey(u.Number, axisTime, uint64(begin.second), second, names), value, nil); err != nil {
		return err
	}
	if begin.version > until {
		return nil // a restore undid it
	}
	return b.Set(lifeKey(u.Number, axisVersion, begin.version, until, names), value[16:], nil)
}

// aliveOf is an object's entry. last is its last version in memory, nil for none.
func (b *batch) aliveOf(object []byte, last *lastVersion) (a alive, err error) {
	if last != nil {
		return last.alive, nil
	}
	if a, known := b.alive[string(object)]; known {
		return a, nil
	}
	value, err := b.db.get(aliveKey(object))
	if err != nil || value == nil {
		return a, err // what is stored ends with a delete
	}
	a.isThere = true
	a.begin, err = readBegin(value)
	return a, err
}

// readBegin reads the value of an entry in spaceAlive.
func readBegin(value []byte) (l lifeBegin, err error) {
	const second = 4
	if len(value) != second+8 {
		return l, errRecord
	}
	return lifeBegin{binary.BigEndian.Uint32(value), binary.BigEndian.Uint64(value[second:])}, nil
}

func (b *batch) setAlive(object []byte, a alive) error {
	b.alive[string(object)] = a
	if !a.isThere {
		return b.Delete(aliveKey(object), nil)
	}
	value := binary.BigEndian.AppendUint32(nil, a.begin.second)
	return b.Set(aliveKey(object), binary.BigEndian.AppendUint64(value, a.begin.version), nil)
}

// see keeps the latest time of a cluster. Of what was stored before this process it is the end of
// the last bucket of the timeline.
func (b *batch) see(u *Unit, second uint32) error {
	latest, known := b.w.latest[u.SourceNumber]
	if !known {
		horizon, err := b.db.horizon()
		if err != nil {
			return err
		}
		prefix := binary.BigEndian.AppendUint32([]byte{spaceTimeline}, u.SourceNumber)
		it, err := b.db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			return err
		}
		latest = unixSeconds(horizon)
		if it.Last() {
			end := (uint64(binary.BigEndian.Uint32(it.Key()[len(prefix):]))+1)*bucketSeconds - 1
			latest = max(latest, uint32(min(end, math.MaxUint32)))
		}
		if err := cmpErr(it.Error(), it.Close()); err != nil {
			return err
		}
		if b.w.latest == nil {
			b.w.latest = map[uint32]uint32{}
		}
		b.w.latest[u.SourceNumber] = latest
	}
	if second > latest {
		b.w.latest[u.SourceNumber] = second
	}
	return nil
}

// liveWalk goes through the names of a unit that may have lived at a point, in their order.
type liveWalk struct {
	r     *reader // of the versions
	unit  *Unit
	lists []*liveList
	names []byte // namespace and name of where it is, as keys have them; nil at the end
}

// liveList is one list of names: what may live now, or a block of finished lives.
type liveList struct {
	it     *pebble.Iterator
	space  byte
	axis   byte
	number uint64 // at which a life must have been
	names  []byte
}

// newLiveWalk begins a walk, as of the moment of a reader.
func newLiveWalk(now *reader, u *Unit, q *StateQuery) (*liveWalk, error) {
	it, err := now.it.Clone(pebble.CloneOptions{})
	if err != nil {
		return nil, err
	}
	w := &liveWalk{unit: u}
	w.r = &reader{db: now.db, it: it, lowest: map[clockAt]uint64{}, reuses: true}
	if err := w.begin(now, q); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *liveWalk) begin(now *reader, q *StateQuery) error {
	names, from := []byte{}, []byte(nil)
	if q.Namespace != "*" {
		names = append([]byte(q.Namespace), separator)
	}
	if behind := q.Behind; behind != nil {
		from = append(append([]byte(behind.Namespace), separator), behind.Name...)
		from = append(from, separator+1)
	}
	if q.Only != "" {
		w.names = append(append(names, q.Only...), separator)
		if bytes.Compare(w.names, from) < 0 {
			w.names = nil
		}
		return nil
	}
	axis, number := byte(axisVersion), q.At.Version
	switch {
	case q.At.IsZero():
		number = math.MaxUint64
	case !q.At.At.IsZero():
		axis, number = axisTime, uint64(unixSeconds(q.At.At))
	}
	if err := w.add(now, unitPrefix(nil, spaceAlive, w.unit.Number), axis, names, from, number); err != nil {
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
	prefix := axisPrefix(w.unit.Number, axis)
	it, err := now.it.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{
		LowerBound: prefix,
		UpperBound: after(prefix),
	}})
	if err != nil {
		return err
	}
	defer it.Close()
	for level := byte(0); level <= 64; level++ {
		block := blockPrefix(w.unit.Number, axis, level, number)
		if !it.SeekGE(append(bytes.Clone(block), names...)) {
			break
		}
		if next := it.Key()[levelAt]; next > level { // there is nothing of the levels between
			level = next - 1
			continue
		}
		if isPrefix(it.Key(), append(bytes.Clone(block), names...)) {
			if err := w.add(now, block, axis, names, from, number); err != nil {
				return err
			}
		}
	}
	return it.Error()
}

// add adds a list: those keys behind a prefix that begin with names, not before from.
func (w *liveWalk) add(
	now *reader, prefix []byte, axis byte, names, from []byte, number uint64,
) error {
	bounds := &pebble.IterOptions{LowerBound: append(bytes.Clone(prefix), names...)}
	bounds.UpperBound = after(bounds.LowerBound)
	it, err := now.it.Clone(pebble.CloneOptions{IterOptions: bounds})
	if err != nil {
		return err
	}
	l := &liveList{it: it, space: prefix[0], axis: axis, number: number}
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
		var names []byte
		var from, until uint64
		if l.space == spaceLife {
			var isLife bool
			if names, from, until, isLife = splitLife(l.it.Key(), value); !isLife {
				return errRecord
			}
		} else {
			begin, err := readBegin(value)
			if err != nil {
				return err
			}
			const head = 1 + 4
			names, from, until = l.it.Key()[head:], begin.version, math.MaxUint64
			if l.axis == axisTime {
				from = uint64(begin.second)
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

// object is the one at which the walk is.
func (w *liveWalk) object() (*Object, error) {
	parts := bytes.Split(w.names, []byte{separator})
	if len(parts) != 3 || len(parts[2]) > 0 {
		return nil, errRecord
	}
	return &Object{w.unit, string(parts[0]), string(parts[1])}, nil
}

func (w *liveWalk) Close() {
	for _, l := range w.lists {
		_ = l.it.Close() // what went wrong was returned before
	}
	w.r.Close()
}

// removeLives removes the lives of a unit that ended before a time.
func (m Maintenance) removeLives(ctx context.Context, u *Unit, second uint32) error {
	prefix := axisPrefix(u.Number, axisTime)
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer it.Close()
	b := m.db.pebble.NewBatch()
	defer func() { _ = b.Close() }() // it gives back memory
	for ok := it.First(); ok && ctx.Err() == nil; {
		key := it.Key()
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		names, _, until, isLife := splitLife(key, value)
		if !isLife || len(value) != 24 {
			return errRecord
		}
		if level := key[levelAt]; binary.BigEndian.Uint64(key[blockAt:]) > uint64(second)>>level {
			ok = it.SeekGE(append(slices.Clone(prefix), level+1)) // the rest of the level began later
			continue
		}
		if until < uint64(second) {
			from, until := binary.BigEndian.Uint64(value[8:]), binary.BigEndian.Uint64(value[16:])
			err := cmp.Or(b.Delete(key, nil),
				b.Delete(lifeKey(u.Number, axisVersion, from, until, names), nil))
			if err != nil {
				return err
			}
		}
		const few = 1000
		if b.Count() >= few {
			if err := b.Commit(pebble.NoSync); err != nil { // after a crash it is done again
				return err
			}
			_ = b.Close()
			b = m.db.pebble.NewBatch()
		}
		ok = it.Next()
	}
	return cmpErr(context.Cause(ctx), it.Error(), b.Commit(pebble.NoSync))
}
