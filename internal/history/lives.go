package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
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

// removeLives removes the lives of a unit that ended before a time.
func (m Maintenance) removeLives(ctx context.Context, u *record.Unit, second uint32) error {
	prefix := keys.Axis(u.Number, keys.AxisTime)
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: prefix,
		UpperBound: keys.After(prefix),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	b := m.db.pebble.NewBatch()
	defer func() { _ = b.Close() }() // it gives back memory
	for ok := it.First(); ok && ctx.Err() == nil; {
		key := it.Key()
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		names, _, until, isLife := keys.SplitLife(key, value)
		if !isLife || len(value) != 24 {
			return record.ErrUnreadable
		}
		if level := keys.LevelOf(key); keys.BlockOf(key) > uint64(second)>>level {
			ok = it.SeekGE(append(slices.Clone(prefix), level+1)) // the rest of the level began later
			continue
		}
		if until < uint64(second) {
			from, until := binary.BigEndian.Uint64(value[8:]), binary.BigEndian.Uint64(value[16:])
			err := cmp.Or(b.Delete(key, nil),
				b.Delete(keys.Life(u.Number, keys.AxisVersion, from, until, names), nil))
			if err != nil {
				return err
			}
		}
		const few = 1000
		if b.Count() >= few {
			if err := b.Commit(pebble.NoSync); err != nil { // after a crash it is done again
				return err
			}
			_ = b.Close()
			b = m.db.pebble.NewBatch()
		}
		ok = it.Next()
	}
	return cmp.Or(context.Cause(ctx), it.Error(), b.Commit(pebble.NoSync))
}

// removeNotices removes the notices of a unit before a time, but for those that say something of
// the state at the time: the end of the last list, and holes that it has not healed.
func (m Maintenance) removeNotices(u *record.Unit, second uint32) error {
	if u.Source == record.ArchiveSource {
		return nil // they are few, and may reach over the time
	}
	notices := keys.InUnit(nil, keys.SpaceNotice, u.Number)
	end := binary.BigEndian.AppendUint32(bytes.Clone(notices), second)
	kept, err := m.lastNotices(u, notices, end)
	if err != nil {
		return err
	}
	b := m.db.pebble.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(notices, end, nil); err != nil {
		return err
	}
	for scope, last := range kept {
		if scope.op != event.Synced {
			var synced time.Time
			list, isListed := kept[noticeScope{op: event.Synced, namespace: scope.namespace}]
			if isListed {
				synced = list.Time
			}
			outlasts, err := query.Outlasts(m.db, last.Notice, synced, time.Unix(int64(second), 0))
			if err != nil {
				return err
			}
			if !outlasts {
				continue
			}
		}
		if err := b.Set(last.key, last.value, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.NoSync)
}

// noticeScope is what notices have in common of which the last one says all: a state is uncertain
// since then, or complete.
type noticeScope struct {
	op                      event.Op
	kind, reason, namespace string
	object                  string // of which a version could not be parsed
}

type storedNotice struct {
	*query.Notice
	key, value []byte
}

// lastNotices returns the last notices of each scope before a key.
func (m Maintenance) lastNotices(
	u *record.Unit, from, to []byte,
) (map[noticeScope]storedNotice, error) {
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	last := map[noticeScope]storedNotice{}
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		notice, err := query.ReadNotice(u, value)
		if err != nil {
			return nil, err
		}
		e := &notice.Event
		scope := noticeScope{op: e.Op, namespace: e.Namespace}
		switch e.Op {
		case event.Synced: // of each namespace with lists of its own
		case event.Quarantined:
			scope.object = e.PartitionKey
		default:
			scope.kind, scope.reason = e.Type, notice.Reason
		}
		last[scope] = storedNotice{notice, bytes.Clone(it.Key()), bytes.Clone(value)}
	}
	return last, it.Error()
}
