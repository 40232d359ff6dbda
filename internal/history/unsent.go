package history

import (
	"cmp"
	"context"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Unsent are versions in the order in which they were stored, until all sinks that want to know
// their users do. Several goroutines may use it.
type Unsent struct{ db *database }

// UnsentVersion is one of them.
type UnsentVersion struct {
	// Number grows from one to the next.
	Number   uint64
	Object   query.Object
	Sequence string
	// Made is the second of the change, and Stored when it came into the history.
	Made, Stored time.Time
}

// open returns the number of the last one, which the next ones follow. Where none is kept, those of
// earlier are removed, and it is nil.
func (u Unsent) open(keeps bool) (last *uint64, err error) {
	all := &pebble.IterOptions{LowerBound: []byte{keys.SpaceUnsent}, UpperBound: []byte{keys.SpaceUnsent + 1}}
	it, err := u.db.pebble.NewIter(all)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	last = new(uint64)
	if it.Last() {
		*last, _ = keys.UnsentNumber(it.Key())
	}
	if !keeps {
		if it.Valid() {
			err = u.db.pebble.DeleteRange(all.LowerBound, all.UpperBound, pebble.NoSync)
		}
		return nil, cmp.Or(it.Error(), err)
	}
	// What all sinks know is not there any more.
	positions := keys.Position(unsentPosition(""))
	it.SetBounds(positions, keys.After(positions))
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		if len(value) == positionSize {
			*last = max(*last, binary.BigEndian.Uint64(value))
		}
	}
	return last, it.Error()
}

// positionSize is the length of the number of a version.
const positionSize = 8

func unsentPosition(sink string) string { return "unsent/" + sink }

// addToUnsent adds the version of w.key. What a list has shown has no user.
func (b *batch) addToUnsent(e *event.Event) error {
	w := b.w
	if w.unsent == nil || e.Initial || e.Op == event.Synced {
		return nil
	}
	*w.unsent++ // of a batch that is not stored no number is used again
	w.value = keys.AppendUnsent(w.value[:0], keys.Seconds(record.TimeOf(e)), time.Now(), w.key)
	return b.Set(keys.Unsent(*w.unsent), w.value, nil)
}

// Next returns the next versions for a sink, at most so many. A sink without a position begins with
// the oldest that is kept.
func (u Unsent) Next(sink string, most int) (list []UnsentVersion, err error) {
	sent, err := u.position(sink)
	if err != nil {
		return nil, err
	}
	it, err := u.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: keys.Unsent(sent + 1), UpperBound: []byte{keys.SpaceUnsent + 1},
	})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok && len(list) < most; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		number, isKey := keys.UnsentNumber(it.Key())
		second, stored, key, isValue := keys.ReadUnsent(value)
		if !isKey || !isValue {
			return nil, u.db.ReadError(record.ErrUnreadable)
		}
		_, namespace, name, seq, isVersion := keys.SplitVersion(key)
		if !isVersion {
			return nil, u.db.ReadError(record.ErrUnreadable)
		}
		v := UnsentVersion{Number: number, Sequence: seq.String(), Made: time.Unix(int64(second), 0), Stored: stored}
		v.Object = query.Object{
			Unit: u.db.Unit(binary.BigEndian.Uint32(key[1:])), Namespace: namespace, Name: name,
		}
		if v.Object.Unit == nil {
			return nil, u.db.ReadError(record.ErrMisfit)
		}
		list = append(list, v)
	}
	return list, u.db.ReadError(it.Error())
}

// position returns the number of the last version that a sink knows the user of.
func (u Unsent) position(sink string) (number uint64, err error) {
	value, err := u.db.get(keys.Position(unsentPosition(sink)))
	if err != nil || len(value) != positionSize {
		return 0, u.db.ReadError(err)
	}
	return binary.BigEndian.Uint64(value), nil
}

// Sent says that a sink knows the users of all versions up to a number. Those that all sinks know
// are removed. Durable when it returns nil.
func (u Unsent) Sent(ctx context.Context, sink string, number uint64, sinks []string) error {
	b := u.db.pebble.NewBatch()
	err := b.Set(keys.Position(unsentPosition(sink)), binary.BigEndian.AppendUint64(nil, number), nil)
	known := number
	for _, other := range sinks {
		if other != sink && err == nil {
			var at uint64
			at, err = u.position(other)
			known = min(known, at)
		}
	}
	if err == nil && known > 0 {
		err = b.DeleteRange(keys.Unsent(0), keys.Unsent(known+1), nil)
	}
	if err != nil {
		return cmp.Or(err, b.Close())
	}
	return u.db.commit(ctx, b)
}
