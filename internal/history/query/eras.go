package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
)

// rewind is where the API server's history went back: the versions of an era begin with those of a
// list, and those of the eras before had come to another version.
type rewind struct {
	era          uint32
	list, before uint64
	at           time.Time
}

// eras are where the history of a unit went back, and of which eras the version may be that was
// asked for last: most questions are about many objects at one version.
type eras struct {
	rewinds     []rewind
	version     uint64 // 0: none was asked for
	first, last uint32
}

// eraOf returns the eras that a version may be of: the newest one that has reached it, where the
// stream says so. Else they are all.
func (r *reader) eraOf(u *record.Unit, version uint64) (first, last uint32, err error) {
	if version == 0 {
		return 0, math.MaxUint32, nil
	}
	of := r.eras[u]
	if of == nil {
		of = &eras{}
		if of.rewinds, err = r.rewinds(u); err != nil {
			return 0, 0, err
		}
		if r.eras == nil {
			r.eras = map[*record.Unit]*eras{}
		}
		r.eras[u] = of
	}
	if of.version != version {
		if of.first, of.last, err = r.findEras(u, of.rewinds, version); err != nil {
			return 0, 0, err
		}
		of.version = version
	}
	return of.first, of.last, nil
}

func (r *reader) findEras(
	u *record.Unit, rewinds []rewind, version uint64,
) (first, last uint32, err error) {
	last = math.MaxUint32
	for i, w := range slices.Backward(rewinds) {
		hasReached := version >= w.list
		switch isNewest := i == len(rewinds)-1; {
		case hasReached && isNewest:
			if hasReached, err = r.hasReached(u, w, version); err != nil {
				return 0, 0, err
			}
		case !isNewest:
			hasReached = hasReached && version <= rewinds[i+1].before
		}
		if hasReached {
			return w.era, last, nil
		}
		if last = math.MaxUint32; version <= w.before {
			last = w.era - 1
		}
	}
	return 0, last, nil
}

// hasReached reports whether the newest era of a unit has reached a version, as far as the history
// has heard: in changes of that era, or in what informers have said since it began.
func (r *reader) hasReached(u *record.Unit, w rewind, version uint64) (bool, error) {
	h := Coverage{r.db}
	for _, other := range r.db.Units() {
		if other.Source != u.Source || other.Resource == "" {
			continue
		}
		era, highest, err := r.db.Reached(other)
		if err != nil || era == w.era && highest >= version {
			return err == nil, err
		}
	}
	for _, other := range r.db.Units() {
		if other.Source != u.Source || other.Resource == "" {
			continue
		}
		notices, progress, err := h.Notes(other)
		if err != nil {
			return false, err
		}
		for _, m := range append(notices, progress...) {
			n, _ := strconv.ParseUint(m.Event.ResourceVersion, 10, 64) // 0 for what is no number
			isSince := other == u && m.Epoch() == w.era || m.Time.After(w.at)
			if isSince && m.Event.Op != event.Gap && n >= version {
				return true, nil
			}
		}
	}
	return false, nil
}

// rewinds reads where the history of a unit went back, in the order of eras.
func (r *reader) rewinds(u *record.Unit) (list []rewind, err error) {
	for m, err := range (Coverage{r.db}).Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		if m.Event.Op != event.Gap || m.Reason != resource.ReasonRewound {
			continue
		}
		before, _ := strconv.ParseUint(m.From, 10, 64) // 0: of the era before nothing is known
		at, err := strconv.ParseUint(m.To, 10, 64)
		era := keys.ParseSequence(m.Event.Sequence, m.Event.ResourceVersion, false).Era
		if err == nil && era > 0 {
			list = append(list, rewind{era, at, before, m.Time})
		}
	}
	slices.SortFunc(list, func(a, b rewind) int { return cmp.Compare(a.era, b.era) })
	return list, nil
}

// isDiverged reports whether the version at the iterator, which it moves, is the end of an object
// that a restore of etcd has undone. Steps: one object had the name when etcd was backed up, and
// another one when it was restored. The list after that has the first one again, in version n. The
// other one's delete is inferred and sorts right before n, in the new epoch. But at n-1 the other
// one had not come yet: the versions up to the backup are those of the epoch before.
func (r *reader) isDiverged(prefix []byte, seq keys.Sequence) (bool, error) {
	if !seq.Deleted || seq.Era == 0 || seq.Entered > 0 || !seq.IsNumber() {
		return false, nil
	}
	v, err := r.readVersion()
	if err != nil || !v.Event.Inferred {
		return false, err
	}
	key := seq.Append(bytes.Clone(prefix))
	if !r.it.SeekGE(append(key, 0)) || !bytes.HasPrefix(r.it.Key(), prefix) {
		return false, r.it.Error()
	}
	next, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
	if !ok {
		return false, record.ErrUnreadable
	}
	if next.Era != seq.Era || next.Version != seq.Version+1 || next.Deleted {
		return false, nil
	}
	era := binary.BigEndian.AppendUint32(bytes.Clone(prefix), seq.Era)
	return !r.it.SeekLT(key) || !bytes.HasPrefix(r.it.Key(), era), r.it.Error()
}
