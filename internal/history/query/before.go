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

// catchUp is how long versions of one backlog may be observed after its first one. It costs no more
// than what the hint, which is a minute, already costs.
const catchUp = keys.ClockSeconds * time.Second

// lastBefore is the highest version of a name with a time before the given one. Within an era and a
// uid times never go back. But a delete has the time when it was observed, and a successor under
// the name the time when it was written, so that one may be earlier:
//
//	v48 11:00:00 added    the bridge is cut off from 12:00:05 to 12:01:00
//	v49 12:01:00 deleted  observed when the bridge was back
//	v50 12:00:10 added    as its managedFields say
//
// v50 proves that v49 happened by 12:00:10. So at 12:00:30 the answer is v50.
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
	began := bytes.Clone(r.it.Key())
	key, err := r.forward(era, at)
	if err != nil {
		return keys.Sequence{}, false, err
	}
	if key != nil {
		seq, ok := keys.DecodeSequence(key[len(prefix):])
		return seq, ok, nil
	}
	for ok := r.it.SeekLT(began); ok && bytes.HasPrefix(r.it.Key(), era); ok = r.it.Prev() {
		t, err := r.time()
		if err != nil {
			return keys.Sequence{}, false, err
		}
		if t.Before(at) {
			seq, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
			return seq, ok, nil
		}
	}
	return keys.Sequence{}, false, r.it.Error()
}

// forward is the key of the last version before a time, from the iterator on; nil for none. A
// version that is not before does not end the search: it may be of a backlog with a successor that
// was written before the time. All of a backlog is observed within catchUp.
func (r *reader) forward(era []byte, at time.Time) (key []byte, err error) {
	var end time.Time
	for ok := true; ok && bytes.HasPrefix(r.it.Key(), era); ok = r.it.Next() {
		t, err := r.time()
		switch {
		case err != nil:
			return nil, err
		case t.Before(at):
			key = append(key[:0], r.it.Key()...)
		case end.IsZero():
			end = t.Add(catchUp)
		case t.After(end):
			return key, nil
		}
	}
	return key, r.it.Error()
}

// time is that of the version at the iterator.
func (r *reader) time() (time.Time, error) {
	value, err := r.it.ValueAndErr()
	if err != nil {
		return time.Time{}, err
	}
	h, err := record.ReadHeader(value)
	return h.Time, err
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
