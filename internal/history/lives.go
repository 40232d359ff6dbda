package history

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// lifeEntry is what the writer knows of an object's entry in spaceAlive.
type lifeEntry struct {
	isThere bool
	begin   keys.LifeBegin
}

// addToLives keeps what lived in order with a new version. last is the newest one, where it is in
// memory. isNewest: none of the object is behind the new one.
func (b *batch) addToLives(
	u *record.Unit, e *event.Event, seq keys.Sequence, object []byte, a lifeEntry,
	last *lastVersion, isNewest bool,
) (lifeEntry, error) {
	at := keys.LifeBegin{Second: keys.Seconds(record.TimeOf(e)), Version: seq.Version} // 0 for no number
	if err := b.advanceClock(u, at.Second); err != nil {
		return a, err
	}
	began := a.begin
	if a.isThere {
		crosses, err := b.crossesEras(object, seq, last, isNewest)
		if err != nil {
			return a, err
		}
		if crosses {
			began.Version = 0
		}
	}
	if !seq.Deleted {
		begin := at
		if a.isThere {
			begin = began.Min(at)
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
	if err := b.addLife(u, object, seq, began); err != nil {
		return a, err
	}
	return lifeEntry{}, b.setAlive(object, lifeEntry{})
}

// crossesEras reports whether what lives has versions of another era than seq. Then etcd was
// restored meanwhile, and any version may be one at which it lived.
func (b *batch) crossesEras(
	object []byte, seq keys.Sequence, last *lastVersion, isNewest bool,
) (crosses bool, err error) {
	switch {
	case last != nil:
		return last.seq.Era != seq.Era, nil
	case isNewest && seq.Era == 0:
		return false, nil
	}
	it, err := b.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: object, UpperBound: keys.After(object),
	})
	if err != nil {
		return false, err
	}
	if it.Last() {
		newest, ok := keys.DecodeSequence(it.Key()[len(object):])
		if crosses = newest.Era != seq.Era; !ok {
			err = record.ErrUnreadable
		}
	}
	return crosses, cmp.Or(err, it.Error(), it.Close())
}

// addLife stores a finished life. Times of one object do not go back; so that nothing depends on
// it, it ends with the latest time of its cluster. No version from that of the delete on names what
// was before, unless the life crosses a restore.
func (b *batch) addLife(u *record.Unit, object []byte, end keys.Sequence, begin keys.LifeBegin) error {
	names := object[1+4:]
	second, until := uint64(b.w.latest[u.SourceNumber]), max(end.Version, end.Entered)
	if !end.IsNumber() || begin.Version == 0 {
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
		return nil // no version has it
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

// An index says which objects had a value, and when: an entry for each value of each object, with
// the span from the first version that had it to the end of the object. So the past of a node is
// read without all pods, and that of an owner without all resources. An update that changes no
// value reads and writes nothing.

// addToIndexes keeps the entries of an object in order with a new version. v and last are as in
// addVersion; changes are those since last, where isCompared.
func (b *batch) addToIndexes(
	u *record.Unit, e *event.Event, data []byte, v, last *lastVersion, isNewest bool,
	changes []diff.Change, isCompared bool,
) error {
	if isCompared && last.seq.Era == v.seq.Era && last.seq.Entered == v.seq.Entered &&
		!v.seq.Deleted && !slices.ContainsFunc(changes, mayChangeIndexes) {
		return nil
	}
	const head = 1 + 4
	b.names = append(b.names[:0], keys.AppendObject(nil, u.Number, e.Namespace, e.Name)[head:]...)
	values := record.IndexValues(nil, u, data)
	if !v.seq.Deleted {
		for _, value := range values {
			if err := b.openEntry(u, value, e, isNewest); err != nil {
				return err
			}
		}
	}
	if !isNewest {
		return nil
	}
	uid, ended := e.UID, []record.IndexValue(nil)
	if v.seq.Deleted {
		ended, values = values, nil
	}
	if last != nil && !last.seq.Deleted {
		before := last.objectJSON()
		var was string
		_ = json.Unmarshal(resource.Member(resource.Member(before, "metadata"), "uid"), &was)
		ended = record.IndexValues(ended, u, before)
		if uid = cmp.Or(was, uid); uid != e.UID {
			values = nil // another object has the name now
		}
	}
	for _, value := range ended {
		if slices.Contains(values, value) {
			continue
		}
		if err := b.closeEntry(u, value, uid); err != nil {
			return err
		}
	}
	return nil
}

// mayChangeIndexes reports whether a change may be of a value of an index, or of the uid.
func mayChangeIndexes(c diff.Change) bool {
	switch c.Path {
	case "", "metadata", "metadata.uid", "spec", "spec.nodeName":
		return true
	}
	return strings.HasPrefix(c.Path, "metadata.ownerReferences")
}

// openEntry notes that an object has a value.
func (b *batch) openEntry(
	u *record.Unit, value record.IndexValue, e *event.Event, isNewest bool,
) error {
	key := b.entryKey(u, value, e.UID)
	span, isThere, err := b.spanOf(key)
	if err != nil {
		return err
	}
	second, before := keys.Seconds(record.TimeOf(e)), span
	switch {
	case !isThere:
		span = keys.IndexSpan{From: second}
	case isNewest:
		span = keys.IndexSpan{From: min(span.From, second)}
	default:
		span.From = min(span.From, second)
		if span.Until > 0 {
			span.Until = max(span.Until, second)
		}
	}
	if isThere && span == before {
		return nil
	}
	return b.setSpan(key, span)
}

// closeEntry notes that an object has a value no longer. It ends with the latest time of its
// cluster, as a life does.
func (b *batch) closeEntry(u *record.Unit, value record.IndexValue, uid string) error {
	key := b.entryKey(u, value, uid)
	span, isThere, err := b.spanOf(key)
	if err != nil || !isThere || span.Until > 0 {
		return err
	}
	span.Until = max(b.w.latest[u.SourceNumber], 1)
	return b.setSpan(key, span)
}

// entryKey is the key of an entry of the object with b.names.
func (b *batch) entryKey(u *record.Unit, value record.IndexValue, uid string) []byte {
	b.entry = keys.AppendIndex(b.entry[:0], u.SourceNumber, value.Index, value.Value)
	b.entry = keys.AppendIndexed(b.entry, u.Number, b.names, uid)
	return b.entry
}

// spanOf returns the span of an entry.
func (b *batch) spanOf(key []byte) (span keys.IndexSpan, isThere bool, err error) {
	if span, isThere = b.spans[string(key)]; isThere {
		return span, true, nil
	}
	value, err := b.db.get(key)
	if err != nil || value == nil {
		return span, false, err
	}
	span, isSpan := keys.ReadIndexSpan(value)
	if !isSpan {
		return span, false, record.ErrUnreadable
	}
	return span, true, nil
}

func (b *batch) setSpan(key []byte, span keys.IndexSpan) error {
	b.spans[string(key)] = span
	return b.Set(key, span.Append(nil), nil)
}

// removeEntries removes the entries of what ended before a second: of objects that do not live, and
// of values that ended. It goes through all entries.
func (m Maintenance) removeEntries(ctx context.Context, second uint32) error {
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keys.SpaceIndex}, UpperBound: []byte{keys.SpaceIndex + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	b := m.db.pebble.NewBatch()
	defer func() { _ = b.Close() }() // it gives back memory
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		isOver, err := m.isOver(it, second)
		if err != nil {
			return err
		}
		if !isOver {
			continue
		}
		if err := b.Delete(it.Key(), nil); err != nil {
			return err
		}
		if b, err = m.commitFull(b); err != nil {
			return err
		}
	}
	return cmp.Or(context.Cause(ctx), it.Error(), b.Commit(pebble.NoSync))
}

// isOver reports whether the entry at an iterator is of what ended before a second. One whose end
// was not seen is over where the object does not live.
func (m Maintenance) isOver(it *pebble.Iterator, second uint32) (bool, error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return false, err
	}
	span, isSpan := keys.ReadIndexSpan(value)
	tail, isKey := keys.CutIndex(it.Key())
	if !isSpan || !isKey {
		return false, record.ErrUnreadable
	}
	if span.Until > 0 || span.From >= second {
		return span.Until > 0 && span.Until < second, nil
	}
	x, isIndexed := keys.SplitIndexed(tail)
	if !isIndexed {
		return false, record.ErrUnreadable
	}
	alive, err := m.db.get(append(keys.InUnit(nil, keys.SpaceAlive, x.Unit), x.Names...))
	return alive == nil, err
}
