package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// lastBefore is the last version of an object before a time. Of one object, times never go back
// within an era, so it lies next to the lowest version that is known of the time after.
func (r *reader) lastBefore(o *Object, at time.Time) (seq keys.Sequence, found bool, err error) {
	prefix := o.prefix()
	end := keys.After(prefix)
	// From the newest era back: the last one in which the object has a version before the time.
	for {
		if !r.it.SeekLT(end) || !bytes.HasPrefix(r.it.Key(), prefix) {
			return seq, false, r.it.Error()
		}
		newest, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
		if !ok {
			return seq, false, record.ErrUnreadable
		}
		era := binary.BigEndian.AppendUint32(bytes.Clone(prefix), newest.Era)
		seq, found, err = r.lastInEra(o, prefix, era, newest.Era, at)
		if err != nil || found {
			return seq, found, err
		}
		end = era
	}
}

// lastInEra is the last version before a time within one era.
func (r *reader) lastInEra(
	o *Object, prefix, era []byte, number uint32, at time.Time,
) (keys.Sequence, bool, error) {
	hint, err := r.lowestAfter(o.Unit, number, at)
	if err != nil {
		return keys.Sequence{}, false, err
	}
	end := keys.After(era)
	ok := false
	if hint > 0 {
		key := binary.BigEndian.AppendUint64(append(bytes.Clone(era), keys.ClassNumber), hint)
		ok = r.it.SeekLT(key) && bytes.HasPrefix(r.it.Key(), era)
	}
	if !ok {
		if ok = r.it.SeekLT(end) && bytes.HasPrefix(r.it.Key(), era); !ok {
			return keys.Sequence{}, false, r.it.Error()
		}
	}
	is, err := r.isBefore(at)
	if err != nil {
		return keys.Sequence{}, false, err
	}
	if is { // forward to the last one that is before
		var key []byte
		for is && err == nil {
			key = append(key[:0], r.it.Key()...)
			if !r.it.Next() || !bytes.HasPrefix(r.it.Key(), era) {
				break
			}
			is, err = r.isBefore(at)
		}
		seq, ok := keys.DecodeSequence(key[len(prefix):])
		return seq, ok, cmp.Or(err, r.it.Error())
	}
	for {
		if !r.it.Prev() || !bytes.HasPrefix(r.it.Key(), era) {
			return keys.Sequence{}, false, r.it.Error()
		}
		if is, err = r.isBefore(at); err != nil {
			return keys.Sequence{}, false, err
		}
		if is {
			seq, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
			return seq, ok, nil
		}
	}
}

// isBefore reports whether the version at the iterator is before a time.
func (r *reader) isBefore(at time.Time) (bool, error) {
	value, err := r.it.ValueAndErr()
	if err != nil {
		return false, err
	}
	h, err := record.ReadHeader(value)
	return h.Time.Before(at), err
}

// minute is one of a unit.
type minute struct{ unit, era, minute uint32 }

// lowestAfter remembers answers of the function of that name. An old answer is good enough: it says
// where to begin to look.
func (r *reader) lowestAfter(u *record.Unit, era uint32, at time.Time) (lowest uint64, err error) {
	key := minute{u.Number, era, keys.Seconds(at) / keys.ClockSeconds}
	lowest, known := r.lowest[key]
	if known {
		return lowest, nil
	}
	lowest, err = lowestAfter(r.db, u, era, at)
	if r.lowest != nil && err == nil {
		r.lowest[key] = lowest
	}
	return lowest, err
}

// lowestAfter is the lowest version that a watch reported after the minute of a time; 0 for none.
func lowestAfter(db Source, u *record.Unit, era uint32, at time.Time) (uint64, error) {
	lower := keys.Clock(u.Number, era, keys.Seconds(at)/keys.ClockSeconds+1)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: keys.After(lower[:9])})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.First() {
		return 0, it.Error()
	}
	value, err := it.ValueAndErr()
	if err != nil || len(value) != 8 {
		return 0, cmp.Or(err, record.ErrUnreadable)
	}
	return binary.BigEndian.Uint64(value), nil
}
