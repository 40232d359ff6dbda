package query

import (
	"cmp"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// CompleteUntil is the time up to which the stream itself says that all changes of units are in it:
// the earliest of their newest progress events, of all partitions of which one was read. Zero where
// one of them has none.
func (h Coverage) CompleteUntil(units []*record.Unit) (until time.Time, err error) {
	for _, u := range units {
		prefix := keys.InUnit(nil, keys.SpaceProgress, u.Number)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			return time.Time{}, h.db.ReadError(err)
		}
		found := false
		for ok := it.First(); ok && err == nil; ok = it.Next() {
			var m *Mark
			if m, err = ReadMark(u, it.Value()); err == nil {
				found = true
				if until.IsZero() || m.Time.Before(until) {
					until = m.Time
				}
			}
		}
		if err := cmp.Or(err, it.Error(), it.Close()); err != nil || !found {
			return time.Time{}, h.db.ReadError(err)
		}
	}
	return until, nil
}

// ListedVersion is the lowest resourceVersion at which the last list of one of some units was:
// every version up to it is stored. What came later may be stored in any order of versions. 0 where
// one of them has no list.
func (h Coverage) ListedVersion(units []*record.Unit) (uint64, error) {
	lowest := uint64(0)
	for i, u := range units {
		lists := map[string]uint64{} // of each namespace that is listed by itself
		for m, err := range h.Marks(u, time.Time{}, time.Time{}) {
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
