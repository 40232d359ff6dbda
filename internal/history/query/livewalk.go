package query

import (
	"bytes"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

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
	space  byte
	axis   byte
	number uint64 // at which a life must have been
	names  []byte
}

// newLiveWalk begins a walk, as of the moment of a reader.
func newLiveWalk(now *reader, u *record.Unit, q *StateQuery) (*liveWalk, error) {
	it, err := now.it.Clone(pebble.CloneOptions{})
	if err != nil {
		return nil, err
	}
	w := &liveWalk{unit: u}
	w.r = &reader{db: now.db, it: it, lowest: map[minute]uint64{}, reuses: true}
	if err := w.begin(now, q); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *liveWalk) begin(now *reader, q *StateQuery) error {
	names, from := []byte{}, []byte(nil)
	if q.Namespace != "*" {
		names = append([]byte(q.Namespace), keys.Separator)
	}
	if behind := q.Behind; behind != nil {
		from = append(append([]byte(behind.Namespace), keys.Separator), behind.Name...)
		from = append(from, keys.Separator+1)
	}
	if q.Only != "" {
		w.names = append(append(names, q.Only...), keys.Separator)
		if bytes.Compare(w.names, from) < 0 {
			w.names = nil
		}
		return nil
	}
	axis, number := byte(keys.AxisVersion), q.At.Version
	switch {
	case q.At.IsZero():
		number = math.MaxUint64
	case !q.At.At.IsZero():
		axis, number = keys.AxisTime, uint64(keys.Seconds(q.At.At))
	}
	if err := w.add(now, keys.InUnit(nil, keys.SpaceAlive, w.unit.Number), axis, names, from,
		number); err != nil {
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
	bounds.UpperBound = keys.After(bounds.LowerBound)
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
			const head = 1 + 4
			names, from, until = l.it.Key()[head:], begin.Version, math.MaxUint64
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
	parts := bytes.Split(w.names, []byte{keys.Separator})
	if len(parts) != 3 || len(parts[2]) > 0 {
		return nil, record.ErrUnreadable
	}
	return &Object{w.unit, string(parts[0]), string(parts[1])}, nil
}

func (w *liveWalk) Close() {
	for _, l := range w.lists {
		_ = l.it.Close() // what went wrong was returned before
	}
	w.r.Close()
}
