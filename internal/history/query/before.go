package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// catchUp is how long versions of one backlog may be observed after its first one. It costs no more
// than what the hint, which is a minute, already costs.
const catchUp = keys.ClockSeconds * time.Second

// lastBefore returns the highest version of a name with a time before the given one. Within an era
// and a uid times never go back. But a delete has the time when it was observed, and a successor
// under the name the time when it was written, so that one may be earlier:
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

// lastInEra returns the last version before a time within one era.
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

// forward returns the key of the last version before a time, from the iterator on; nil for none. A
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

// time returns the time of the version at the iterator.
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

// lowestAfter returns the lowest version that a watch reported after the minute of a time; 0 for
// none.
func lowestAfter(db DB, u *record.Unit, era uint32, at time.Time) (uint64, error) {
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

// Horizon returns the time from which on the history is complete, as far as the stream was. Of each
// object that lived then it also has the version before. Zero: nothing was ever removed.
func (h Coverage) Horizon() (time.Time, error) { return h.db.Horizon() }

// CheckState returns an error with ErrNotKnown where retention has removed what a state needs: its
// point is before the horizon.
func (h Coverage) CheckState(q StateQuery) error {
	horizon, err := h.Horizon()
	if err != nil || horizon.IsZero() || len(q.Units) == 0 {
		return err
	}
	since := "from " + ShowTime(horizon) + " on"
	isBefore := q.At.IsBefore(horizon)
	if q.At.Version > 0 {
		first, err := h.firstVersion(q.Units[0].Source, horizon)
		if err != nil {
			return err
		}
		isBefore = q.At.Version < first
		since += fmt.Sprintf(", which is resourceVersion %d", first)
	}
	if !isBefore {
		return nil
	}
	return fmt.Errorf("the state at %s %w: this history is kept %s (retention)", q.At, ErrNotKnown,
		since)
}

// firstVersion returns the lowest version that a watch reported since a time; without one the
// newest that is known. A state of a lower version may need versions that were removed.
func (h Coverage) firstVersion(source string, since time.Time) (uint64, error) {
	first := uint64(math.MaxUint64)
	for _, u := range h.db.Units() {
		if u.Source != source || u.Resource == "" {
			continue
		}
		version, err := h.firstOfUnit(u, keys.Seconds(since)/keys.ClockSeconds)
		if err != nil {
			return 0, h.db.ReadError(err)
		}
		first = min(first, version)
	}
	if first == math.MaxUint64 {
		return Timeline(h).VersionAt((&record.Unit{Source: source}).Cluster(), time.Time{})
	}
	return first, nil
}

// firstOfUnit returns the lowest version in the first minute from one on, over all eras; the
// highest number for none.
func (h Coverage) firstOfUnit(u *record.Unit, minute uint32) (uint64, error) {
	prefix := keys.InUnit(nil, keys.SpaceClock, u.Number)
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	first := uint64(math.MaxUint64)
	for ok := it.First(); ok; {
		key := it.Key()
		if len(key) != len(prefix)+4+4 || len(it.Value()) != 8 {
			return 0, record.ErrUnreadable
		}
		era := binary.BigEndian.Uint32(key[len(prefix):])
		if binary.BigEndian.Uint32(key[len(prefix)+4:]) < minute {
			ok = it.SeekGE(keys.Clock(u.Number, era, minute))
			continue
		}
		first = min(first, binary.BigEndian.Uint64(it.Value()))
		if era == math.MaxUint32 {
			break
		}
		ok = it.SeekGE(keys.Clock(u.Number, era+1, minute))
	}
	return first, it.Error()
}

// Reached returns the highest resourceVersion of a cluster that the history has heard of, in
// changes and in what the stream says about itself; 0 for none. Only where that of the changes is
// lower than wanted it reads what the stream says.
func (h Coverage) Reached(cluster string, wanted uint64) (highest uint64, err error) {
	for _, u := range h.db.Units() {
		if u.Cluster() == cluster && u.Resource != "" {
			_, reached, err := h.db.Reached(u)
			if err != nil {
				return 0, h.db.ReadError(err)
			}
			highest = max(highest, reached)
		}
	}
	if highest >= wanted {
		return highest, nil
	}
	number := func(text string) uint64 {
		n, _ := strconv.ParseUint(text, 10, 64) // 0 for what is no number
		return n
	}
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster {
			continue
		}
		for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
			if err != nil {
				return 0, err
			}
			if m.Unit == u {
				highest = max(highest, number(m.Event.ResourceVersion), number(m.From), number(m.To))
			}
		}
		for m, err := range h.progress(u) {
			if err != nil {
				return 0, err
			}
			highest = max(highest, number(m.Event.ResourceVersion))
		}
	}
	return highest, nil
}

// progress returns the newest progress of each scope and partition of a unit. The error is the last
// element.
func (h Coverage) progress(u *record.Unit) iter.Seq2[*Notice, error] {
	return func(yield func(*Notice, error) bool) {
		prefix := keys.InUnit(nil, keys.SpaceProgress, u.Number)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			yield(nil, h.db.ReadError(err))
			return
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			m, err := ReadNotice(u, it.Value())
			if err != nil {
				yield(nil, h.db.ReadError(err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// CompleteUntil returns the time up to which the stream itself says that all changes of units are
// in it: the earliest of their newest progress events, of all partitions of which one was read.
// Zero where one of them has none.
func (h Coverage) CompleteUntil(units []*record.Unit) (until time.Time, err error) {
	for _, u := range units {
		found := false
		for m, err := range h.progress(u) {
			if err != nil {
				return time.Time{}, err
			}
			if found = true; until.IsZero() || m.Time.Before(until) {
				until = m.Time
			}
		}
		if !found {
			return time.Time{}, nil
		}
	}
	return until, nil
}

// ListedVersion returns the lowest resourceVersion at which the last list of one of some units was:
// every version up to it is stored. What came later may be stored in any order of versions. 0 where
// one of them has no list.
func (h Coverage) ListedVersion(units []*record.Unit) (uint64, error) {
	lowest := uint64(0)
	for i, u := range units {
		lists := map[string]uint64{} // of each namespace that is listed by itself
		for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
			if err != nil {
				return 0, err
			}
			if m.Unit == u && m.Event.AboutInformer() && m.Event.Op == event.Synced {
				// A version that is no number is 0: nothing is known.
				lists[m.Event.Namespace], _ = strconv.ParseUint(m.Event.ResourceVersion, 10, 64)
			}
		}
		of := uint64(0)
		for _, version := range lists {
			if of == 0 || version < of {
				of = version
			}
		}
		if i == 0 || of < lowest {
			lowest = of
		}
	}
	return lowest, nil
}
