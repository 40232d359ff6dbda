package query

import (
	"bytes"
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

// catchUp is how long versions of one backlog may be observed after its first one.
const catchUp = time.Minute

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

// nearVersions are read one by one before a search begins to halve: a step costs a fraction of a
// seek.
const nearVersions = 16

// lastInEra returns the last version before a time within one era. It begins where the objects
// before had theirs. Where that is far off it halves the versions: an object may have 100,000.
func (r *reader) lastInEra(
	o *Object, prefix, era []byte, number uint32, at time.Time,
) (keys.Sequence, bool, error) {
	s := eraSearch{reader: r, era: era, at: at}
	key, isFound, err := s.near(r.hints[number])
	if err == nil && !isFound {
		key, err = s.halve()
		if r.hints != nil && s.behind > 0 {
			r.hints[number] = s.behind
		}
	}
	if err != nil || key == nil {
		return keys.Sequence{}, false, err
	}
	seq, ok := keys.DecodeSequence(key[len(prefix):])
	if !ok {
		return seq, false, record.ErrUnreadable
	}
	return seq, true, nil
}

// eraSearch looks for the last version of an object in an era before a time.
type eraSearch struct {
	*reader
	era []byte
	at  time.Time
	// behind is a version behind the one that was found, 0 for none.
	behind uint64
}

// near looks at some versions around a number, 0 for the end of the era. Where isFound is false,
// others have to be looked at.
func (s *eraSearch) near(number uint64) (key []byte, isFound bool, err error) {
	isThere := number > 0 && s.seek(number)
	if !isThere {
		isThere = s.seekLast()
	}
	if !isThere {
		return nil, true, s.it.Error()
	}
	began := bytes.Clone(s.it.Key())
	key, hasMore, err := s.forward(nearVersions)
	if key != nil || err != nil {
		return key, !hasMore, err
	}
	isThere = s.it.SeekLT(began)
	for range nearVersions {
		if !isThere || !bytes.HasPrefix(s.it.Key(), s.era) {
			return nil, true, s.it.Error()
		}
		if isFound, err = s.isBefore(); isFound || err != nil {
			return bytes.Clone(s.it.Key()), isFound, err
		}
		isThere = s.it.Prev()
	}
	return nil, false, s.it.Error()
}

// halve finds the place by halving the numbers between the first and the last version. What has no
// number is walked over: it is at the end.
func (s *eraSearch) halve() (key []byte, err error) {
	low, high := uint64(0), uint64(math.MaxUint64) // versions up to low are before, high is not
	if s.seek(high) {
		isBefore, err := s.isBefore()
		if err == nil && isBefore {
			key, _, err = s.forward(math.MaxInt)
		}
		if isBefore || err != nil {
			return key, err
		}
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		if !s.seek(middle + 1) { // the first is behind
			if s.it.Error() != nil {
				return nil, s.it.Error()
			}
			low = middle
			continue
		}
		isBefore, err := s.isBefore()
		if err != nil {
			return nil, err
		}
		if isBefore {
			low = middle
			continue
		}
		seq, ok := keys.DecodeSequence(s.it.Key()[len(s.era)-4:])
		if !ok || seq.Version > middle {
			return nil, record.ErrUnreadable
		}
		high = seq.Version
	}
	if s.behind = high; !s.seek(high) {
		s.it.SeekGE(s.era)
	}
	key, _, err = s.forward(math.MaxInt)
	return key, err
}

// seek moves to the last version below a number. It reports whether there is one.
func (s *eraSearch) seek(number uint64) bool {
	key := binary.BigEndian.AppendUint64(append(bytes.Clone(s.era), keys.ClassNumber), number)
	return s.it.SeekLT(key) && bytes.HasPrefix(s.it.Key(), s.era)
}

func (s *eraSearch) seekLast() bool {
	return s.it.SeekLT(keys.After(s.era)) && bytes.HasPrefix(s.it.Key(), s.era)
}

// isBefore reports whether the version at the iterator is before the time.
func (s *eraSearch) isBefore() (bool, error) {
	t, err := s.time()
	return t.Before(s.at), err
}

// forward returns the key of the last version before the time, from the iterator on; nil for none.
// hasMore: it has read as many as it should, and others may be before the time. A version that is
// not before does not end the search: it may be of a backlog with a successor that was written
// before the time. All of a backlog is observed within catchUp.
func (s *eraSearch) forward(most int) (key []byte, hasMore bool, err error) {
	var end time.Time
	for ok := true; ok && s.it.Valid() && bytes.HasPrefix(s.it.Key(), s.era); ok = s.it.Next() {
		t, err := s.time()
		switch {
		case err != nil:
			return nil, false, err
		case t.Before(s.at):
			if most--; most < 0 {
				return key, true, nil
			}
			key = append(key[:0], s.it.Key()...)
		case end.IsZero():
			end = t.Add(catchUp)
		case t.After(end):
			return key, false, nil
		}
	}
	return key, false, s.it.Error()
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
		var first uint64
		if isBefore, first, err = h.isTrimmed(q); err != nil {
			return h.db.ReadError(err)
		}
		since += fmt.Sprintf(", which is resourceVersion %d", first)
	}
	if !isBefore {
		return nil
	}
	return fmt.Errorf("the state at %s %w: this history is kept %s (retention)", q.At, ErrNotKnown,
		since)
}

// isTrimmed reports whether a state of a version may need versions that retention has removed, and
// from which version on it does not.
func (h Coverage) isTrimmed(q StateQuery) (isTrimmed bool, first uint64, err error) {
	r, err := newReader(h.db)
	if err != nil {
		return false, 0, err
	}
	defer r.Close()
	for _, u := range q.Units {
		era, version, err := h.db.Trimmed(u)
		if err != nil {
			return false, 0, err
		}
		oldest, newest, err := r.eraOf(u, q.At.Version)
		if err != nil {
			return false, 0, err
		}
		isTrimmed = isTrimmed || era > newest || era >= oldest && q.At.Version < version
		first = max(first, version)
	}
	return isTrimmed, first, nil
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
		lists := map[Scope]uint64{} // of each that is listed by itself
		for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
			if err != nil {
				return 0, err
			}
			if m.Unit == u && m.Event.AboutInformer() && m.Event.Op == event.Synced {
				// A version that is no number is 0: nothing is known.
				lists[m.Scope()], _ = strconv.ParseUint(m.Event.ResourceVersion, 10, 64)
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
