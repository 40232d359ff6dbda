package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Retention says what is kept.
type Retention struct {
	// Age is how long versions are kept; 0: forever.
	Age time.Duration
	// RequestAge is how long requests of audit logs are kept; 0: as versions.
	RequestAge time.Duration
	// MaxBytes bounds the directory: when it is larger, the oldest eighth of the time goes. 0: half
	// of its volume.
	MaxBytes uint64
}

// ErrNoRoom is returned where what is left of the volume is for the state directory and its log.
var ErrNoRoom = errors.New("its volume is nearly full")

// reserve of a volume of a size is what a history leaves free on it. It removes old versions while
// there is less, and stores nothing while there is less than half. That half is larger than what
// the state directory leaves free: the state and its log are written when the history is not.
func reserve(total uint64) uint64 { return min(1<<30, total/8) }

// Room returns ErrNoRoom while nothing more is to be stored. It asks the volume once a second.
func (m Maintenance) Room() error {
	if last := m.db.room.Load(); last != nil && time.Since(last.at) < time.Second {
		return last.err
	}
	now := room{at: time.Now()}
	usage, err := m.db.disk.GetDiskUsage(m.db.dir)
	if err == nil && usage.AvailBytes < reserve(usage.TotalBytes)/2 {
		now.err = fmt.Errorf("%w: %d MiB are left of %d, and %d are for the state directory", ErrNoRoom,
			usage.AvailBytes>>20, usage.TotalBytes>>20, reserve(usage.TotalBytes)>>21)
	}
	m.db.room.Store(&now)
	return now.err
}

// room is what Room has found at a time.
type room struct {
	at  time.Time
	err error
}

// Scarce reports whether less than the reserve is free.
func (m Maintenance) Scarce() bool {
	usage, err := m.db.disk.GetDiskUsage(m.db.dir)
	return err == nil && usage.AvailBytes < reserve(usage.TotalBytes)
}

// bound returns how many bytes the history may take; 0 where the volume does not report its size.
// While less than the reserve is free, that is less by what is missing, but at least an eighth of
// it: something else fills the volume then.
func (m Maintenance) bound(maxBytes uint64) uint64 {
	usage, err := m.db.disk.GetDiskUsage(m.db.dir)
	if err != nil {
		return maxBytes
	}
	bound := cmp.Or(maxBytes, usage.TotalBytes/2)
	if want := reserve(usage.TotalBytes); usage.AvailBytes < want {
		used, missing := m.DiskBytes(), want-usage.AvailBytes
		bound = max(min(bound, used-min(used, missing)), bound/8)
	}
	return bound
}

// Maintenance is for the owner of a history: what is kept, and what that takes.
type Maintenance struct{ db *database }

// DiskBytes returns what the history takes on disk.
func (m Maintenance) DiskBytes() uint64 { return m.db.pebble.Metrics().DiskSpaceUsage() }

// Retain removes what is too old, or too much, once. Others may write and read meanwhile. now must
// be no time of a clock that may be ahead; while it is zero, nothing is removed.
func (m Maintenance) Retain(ctx context.Context, r Retention, now time.Time) error {
	if now.IsZero() {
		return nil
	}
	if r.Age > 0 {
		if err := m.removeBefore(ctx, keys.Seconds(now.Add(-r.Age))); err != nil {
			return m.db.ReadError(err)
		}
	}
	if age := cmp.Or(r.RequestAge, r.Age); age > 0 {
		if err := m.removeRequests(ctx, keys.Seconds(now.Add(-age))); err != nil {
			return m.db.ReadError(err)
		}
	}
	if bound := m.bound(r.MaxBytes); bound == 0 || m.DiskBytes() <= bound {
		return nil
	}
	horizon, err := m.behindOldestEighth(now)
	if err != nil || horizon == 0 {
		return m.db.ReadError(err)
	}
	err = m.removeBefore(ctx, horizon)
	if err == nil {
		err = m.removeRequests(ctx, horizon)
	}
	if err != nil {
		return m.db.ReadError(err)
	}
	// What was removed takes space until tables are rewritten.
	return m.db.ReadError(m.db.pebble.Compact(ctx, []byte{keys.SpaceVersion},
		[]byte{keys.SpaceVersion + 1},
		false))
}

// behindOldestEighth returns where the oldest eighth of the time ends that is kept; 0: nothing is
// to be removed. An entry of a clock that was ahead is no end of that time: an eighth up to it may
// be more than there is. An entry that came late is no start: an eighth from it may be known to be
// incomplete.
func (m Maintenance) behindOldestEighth(now time.Time) (uint32, error) {
	oldest, newest, err := m.extent()
	if err != nil {
		return 0, err
	}
	known, err := m.db.Horizon()
	if err != nil {
		return 0, err
	}
	oldest, newest = max(oldest, keys.Seconds(known)), min(newest, keys.Seconds(now))
	if newest <= oldest {
		return 0, nil
	}
	// The horizon is the start of a bucket, and would not move by less than one.
	return oldest + max((newest-oldest)/8, keys.BucketSeconds), nil
}

// extent returns the first and the last second of the timeline, by its buckets.
func (m Maintenance) extent() (oldest, newest uint32, err error) {
	sources := map[uint32]bool{}
	for _, u := range m.db.units.all() {
		if sources[u.SourceNumber] {
			continue
		}
		sources[u.SourceNumber] = true
		prefix := keys.Timeline(u.SourceNumber)
		it, err := m.db.pebble.NewIter(&pebble.IterOptions{
			LowerBound: prefix,
			UpperBound: keys.After(prefix),
		})
		if err != nil {
			return 0, 0, err
		}
		if it.First() {
			first := binary.BigEndian.Uint32(it.Key()[5:]) * keys.BucketSeconds
			if oldest == 0 || first < oldest {
				oldest = first
			}
			it.Last()
			newest = max(newest, binary.BigEndian.Uint32(it.Key()[5:])*keys.BucketSeconds)
		}
		if err := cmp.Or(it.Error(), it.Close()); err != nil {
			return 0, 0, err
		}
	}
	return oldest, newest, nil
}

// removeBefore removes what is before a time, down to whole buckets: of each object that has
// versions there all but the last one, and that too if it is the end of the object. It touches only
// objects of which something is removed.
func (m Maintenance) removeBefore(ctx context.Context, second uint32) error {
	bucket := second / keys.BucketSeconds
	horizon := bucket * keys.BucketSeconds
	known, err := m.db.Horizon()
	if err != nil || keys.Seconds(known) >= horizon {
		return err
	}
	if oldest, _, err := m.extent(); err != nil || oldest == 0 || oldest >= horizon {
		return err // nothing is older, and nothing will be missing
	}
	// Questions know first that something is about to be missing.
	if err := m.setHorizon(ctx, horizon); err != nil {
		return err
	}
	const rarely = 3600 // all entries are looked at
	if horizon/rarely != keys.Seconds(known)/rarely {
		if err := m.removeEntries(ctx, horizon); err != nil {
			return err
		}
	}
	if err := m.removeActors(horizon); err != nil {
		return err
	}
	sources := map[uint32]bool{}
	for _, u := range m.db.units.all() {
		if err := cmp.Or(m.removeNotices(u, horizon), m.removeLives(ctx, u, horizon)); err != nil {
			return err
		}
		if sources[u.SourceNumber] {
			continue
		}
		sources[u.SourceNumber] = true
		if err := m.removeOf(ctx, u.SourceNumber, bucket); err != nil {
			return err
		}
	}
	return nil
}

// setHorizon stores the time and the versions before which something will be missing.
func (m Maintenance) setHorizon(ctx context.Context, horizon uint32) error {
	b := m.db.pebble.NewBatch()
	defer b.Close()
	trimmed := map[uint32]highestStored{}
	for _, u := range m.db.units.all() {
		era, version, err := m.db.Trimmed(u)
		if err != nil {
			return err
		}
		trimmed[u.Number] = highestStored{era, version}
	}
	sources := map[uint32]bool{}
	for _, u := range m.db.units.all() {
		if sources[u.SourceNumber] {
			continue
		}
		sources[u.SourceNumber] = true
		if err := m.highestBefore(ctx, u.SourceNumber, horizon/keys.BucketSeconds, trimmed); err != nil {
			return err
		}
	}
	for unit, to := range trimmed {
		value := binary.BigEndian.AppendUint32(nil, to.era)
		if err := b.Set(keys.Trimmed(unit), binary.BigEndian.AppendUint64(value, to.version), nil); err != nil {
			return err
		}
	}
	if err := b.Set(horizonKey, binary.BigEndian.AppendUint32(nil, horizon), nil); err != nil {
		return err
	}
	return b.Commit(m.db.sync)
}

// highestBefore finds the highest version of each unit of a cluster before a bucket. At a lower one
// an object may have been what is removed.
func (m Maintenance) highestBefore(
	ctx context.Context, source, bucket uint32, highest map[uint32]highestStored,
) error {
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: keys.Timeline(source), UpperBound: keys.AppendBucket(nil, source, bucket),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		e, isKey := keys.DecodeEntry(it.Key())
		if !isKey || ctx.Err() != nil {
			return cmp.Or(context.Cause(ctx), record.ErrUnreadable)
		}
		last, to := highest[e.Unit], highestStored{e.Seq.Era, max(e.Seq.Version, e.Seq.Entered)}
		if to.era > last.era || to.era == last.era && to.version > last.version {
			highest[e.Unit] = to
		}
	}
	return it.Error()
}

// removeOf removes a cluster's versions before a bucket.
func (m Maintenance) removeOf(ctx context.Context, source, bucket uint32) error {
	first := keys.Timeline(source)
	end := keys.AppendBucket(nil, source, bucket)
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{LowerBound: first, UpperBound: end})
	if err != nil {
		return err
	}
	defer it.Close()
	// An object is looked at once for each bucket in which something happened to it.
	current, done := uint32(0), map[string]bool{}
	for it.First(); it.Valid(); it.Next() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e, ok := keys.DecodeEntry(it.Key())
		if !ok {
			return record.ErrUnreadable
		}
		if e.Second/keys.BucketSeconds != current {
			current = e.Second / keys.BucketSeconds
			clear(done)
		}
		object := string(keys.AppendObject(nil, e.Unit, e.Namespace, e.Name))
		if done[object] {
			continue
		}
		done[object] = true
		u := m.db.units.numbered(e.Unit)
		if u == nil {
			return record.ErrUnreadable
		}
		if err := m.trim(&query.Object{Unit: u, Namespace: e.Namespace, Name: e.Name},
			bucket*keys.BucketSeconds); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	return m.db.pebble.DeleteRange(first, end, pebble.NoSync)
}

// trim removes an object's versions before a time, but for the last one of an object that lived
// then, which is stored whole.
func (m Maintenance) trim(o *query.Object, second uint32) error {
	seq, found, err := query.LastBefore(m.db, o, time.Unix(int64(second), 0))
	if err != nil || !found {
		return err
	}
	it, err := m.db.NewIter(&allVersions)
	if err != nil {
		return err
	}
	defer it.Close()
	prefix := keys.AppendObject(nil, o.Unit.Number, o.Namespace, o.Name)
	key := seq.Append(bytes.Clone(prefix))
	if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
		return cmp.Or(it.Error(), record.ErrUnreadable)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	h, err := record.ReadHeader(value)
	if err != nil {
		return err
	}
	b := m.db.pebble.NewBatch()
	defer b.Close()
	end := key
	switch {
	case seq.Deleted:
		end = append(bytes.Clone(key), 0) // it goes too
	case h.Kind == record.Delta:
		whole, err := query.Rebased(it, o, seq, h)
		if err != nil {
			return err
		}
		if err := b.Set(key, whole, nil); err != nil {
			return err
		}
	}
	if err := b.DeleteRange(prefix, end, nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync) // after a crash it is done again
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
		if b, err = m.commitFull(b); err != nil {
			return err
		}
		ok = it.Next()
	}
	return cmp.Or(context.Cause(ctx), it.Error(), b.Commit(pebble.NoSync))
}

// commitFull commits a batch of removals that is large, and returns the next one.
func (m Maintenance) commitFull(b *pebble.Batch) (*pebble.Batch, error) {
	const few = 1000
	if b.Count() < few {
		return b, nil
	}
	if err := b.Commit(pebble.NoSync); err != nil { // after a crash it is done again
		return b, err
	}
	return m.db.pebble.NewBatch(), b.Close()
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
			list, isListed := kept[noticeScope{op: event.Synced, Scope: scope.Scope}]
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
	op           event.Op
	kind, reason string
	query.Scope
	object string // of which a version could not be parsed
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
		scope := noticeScope{op: e.Op, Scope: notice.Scope()}
		switch e.Op {
		case event.Synced: // of each scope with lists of its own
		case event.Quarantined:
			scope.object = e.PartitionKey
		default:
			scope.kind, scope.reason = e.Type, notice.Reason
		}
		last[scope] = storedNotice{notice, bytes.Clone(it.Key()), bytes.Clone(value)}
	}
	return last, it.Error()
}
