package history

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// CompleteUntil is the time up to which the stream itself says that all changes of units are in it:
// the earliest of their newest progress events. Zero where one of them has none.
func (db *DB) CompleteUntil(units []*Unit) (until time.Time, err error) {
	for _, u := range units {
		prefix := unitPrefix(nil, spaceProgress, u.Number)
		it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			return time.Time{}, db.readError(err)
		}
		found := false
		for ok := it.First(); ok && err == nil; ok = it.Next() {
			var m *Mark
			if m, err = readMark(u, it.Value()); err == nil {
				found = true
				if until.IsZero() || m.Time.Before(until) {
					until = m.Time
				}
			}
		}
		if err := cmpErr(err, it.Error(), it.Close()); err != nil || !found {
			return time.Time{}, db.readError(err)
		}
	}
	return until, nil
}
