package query

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Horizon is the time from which on the history is complete, as far as the stream was. Of what
// lived then there is the version of before, too. Zero: nothing was ever removed.
func (h Coverage) Horizon() (time.Time, error) { return h.db.Horizon() }

// CheckState is an error with ErrNotKnown where retention has removed what a state needs: its point
// is before the horizon.
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

// firstVersion is the lowest version that a watch reported since a time; without one the newest
// that is known. A state of a lower one may need versions of before.
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

// firstOfUnit is the lowest version in the first minute from one on, over all eras; the highest
// number for none.
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
