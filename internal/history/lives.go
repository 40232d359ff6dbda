package history

import (
	"cmp"
	"encoding/binary"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// lifeEntry is what the writer knows of an object's entry in spaceAlive.
type lifeEntry struct {
	isThere bool
	begin   keys.LifeBegin
}

// addToLives keeps what lived in order with a new version. isNewest: none of the object is behind
// it.
func (b *batch) addToLives(
	u *record.Unit, e *event.Event, seq keys.Sequence, object []byte, a lifeEntry, isNewest bool,
) (lifeEntry, error) {
	at := keys.LifeBegin{Second: keys.Seconds(record.TimeOf(e)), Version: seq.Version} // 0 for no number
	if err := b.advanceClock(u, at.Second); err != nil {
		return a, err
	}
	if !seq.Deleted {
		begin := at
		if a.isThere {
			begin = a.begin.Min(at)
		}
		if a.isThere && begin == a.begin {
			return a, nil
		}
		a = lifeEntry{true, begin}
		return a, b.setAlive(object, a)
	}
	if !a.isThere || !isNewest {
		return a, nil // what lives is as before
	}
	if err := b.addLife(u, object, seq, a.begin); err != nil {
		return a, err
	}
	return lifeEntry{}, b.setAlive(object, lifeEntry{})
}

// addLife stores a finished life. Times of one object do not go back; so that nothing depends on
// it, it ends with the latest time of its cluster. No version from that of the delete on names what
// was before.
func (b *batch) addLife(u *record.Unit, object []byte, end keys.Sequence, begin keys.LifeBegin) error {
	names := object[1+4:]
	second, until := uint64(b.w.latest[u.SourceNumber]), max(end.Version, end.Entered)
	if !end.IsNumber() {
		until = math.MaxUint64
	}
	value := binary.BigEndian.AppendUint64(nil, second)
	value = binary.BigEndian.AppendUint64(value, begin.Version)
	value = binary.BigEndian.AppendUint64(value, until)
	if err := b.Set(keys.Life(u.Number, keys.AxisTime, uint64(begin.Second), second, names), value,
		nil); err != nil {
		return err
	}
	if begin.Version > until {
		return nil // a restore undid it
	}
	return b.Set(keys.Life(u.Number, keys.AxisVersion, begin.Version, until, names), value[16:], nil)
}

// aliveOf returns an object's entry. last is its last version in memory, nil for none.
func (b *batch) aliveOf(object []byte, last *lastVersion) (a lifeEntry, err error) {
	if last != nil {
		return last.alive, nil
	}
	if a, known := b.alive[string(object)]; known {
		return a, nil
	}
	value, err := b.db.get(keys.Alive(object))
	if err != nil || value == nil {
		return a, err // what is stored ends with a delete
	}
	begin, ok := keys.ReadBegin(value)
	if !ok {
		return a, record.ErrUnreadable
	}
	return lifeEntry{true, begin}, nil
}

func (b *batch) setAlive(object []byte, a lifeEntry) error {
	b.alive[string(object)] = a
	if !a.isThere {
		return b.Delete(keys.Alive(object), nil)
	}
	value := binary.BigEndian.AppendUint32(nil, a.begin.Second)
	return b.Set(keys.Alive(object), binary.BigEndian.AppendUint64(value, a.begin.Version), nil)
}

// advanceClock keeps the latest time of a cluster. Of what was stored before this process it is the
// end of the last bucket of the timeline.
func (b *batch) advanceClock(u *record.Unit, second uint32) error {
	latest, known := b.w.latest[u.SourceNumber]
	if !known {
		horizon, err := b.db.Horizon()
		if err != nil {
			return err
		}
		prefix := keys.Timeline(u.SourceNumber)
		it, err := b.db.pebble.NewIter(&pebble.IterOptions{
			LowerBound: prefix,
			UpperBound: keys.After(prefix),
		})
		if err != nil {
			return err
		}
		latest = keys.Seconds(horizon)
		if it.Last() {
			end := (uint64(binary.BigEndian.Uint32(it.Key()[len(prefix):]))+1)*keys.BucketSeconds - 1
			latest = max(latest, uint32(min(end, math.MaxUint32)))
		}
		if err := cmp.Or(it.Error(), it.Close()); err != nil {
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
