package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Writer stores events. Append is called by one goroutine at a time.
type Writer struct {
	db *database
	// busy has a value while Append runs, or a commit of it. Its holder owns the other fields. It
	// is no semaphore: whoever waits for it also waits for the end of the database.
	busy    chan struct{}
	last    lastVersions
	delta   record.Encoder
	unsaved []*record.Unit           // that no commit has stored
	latest  map[uint32]uint32        // time of each source
	reached map[uint32]highestStored // of each unit
	late    map[uint32]lateTime      // the newest of each unit
	unsent  *uint64                  // the number of the last one; nil: no sink wants them
	// Memory that is used again.
	key, value, other, fields, spare []byte
}

func newWriter(db *database, lastVersionsBytes int) *Writer {
	return &Writer{db: db, busy: make(chan struct{}, 1), last: lastVersions{max: lastVersionsBytes}}
}

// SourcePosition says how far a source is read.
type SourcePosition struct {
	Name     string
	Position json.RawMessage
}

// AppendResult is what Append has done with a batch.
type AppendResult struct {
	Versions, Notices, Repeats int
}

// Append stores events and positions, all or nothing. Durable when it returns nil. The events are
// not kept. When ctx ends while the disk does not answer, nothing is known of them: store them
// again. ErrOtherCluster and an event.PanicError refuse a batch, any other error may heal.
func (w *Writer) Append(
	ctx context.Context, events []*event.Event, positions ...SourcePosition,
) (AppendResult, error) {
	select {
	case w.busy <- struct{}{}: // until the commit has ended
	case <-ctx.Done():
		return AppendResult{}, context.Cause(ctx)
	case <-w.db.failed:
		return AppendResult{}, w.db.err
	}
	b := &batch{
		db: w.db, w: w, Batch: w.db.pebble.NewBatch(), written: map[string]bool{},
		alive: map[string]lifeEntry{}, spans: map[string]keys.IndexSpan{},
	}
	done := make(chan error, 1)
	if err := b.fill(events, positions); err != nil || b.Empty() {
		b.ended(err)
		return b.stored, w.db.ReadError(err)
	}
	stored := b.stored
	w.db.commits.Go(func() {
		err := b.Commit(w.db.sync)
		b.ended(err)
		done <- err
	})
	select {
	case err := <-done:
		return stored, w.db.ReadError(err)
	case <-ctx.Done():
		return AppendResult{}, context.Cause(ctx)
	case <-w.db.failed:
		return AppendResult{}, w.db.err
	}
}

// Position returns what Append has stored for a source last, nil for nothing.
func (w *Writer) Position(source string) (json.RawMessage, error) {
	position, err := w.db.get(keys.Position(source))
	return position, w.db.ReadError(err)
}

// ended releases the writer. What was not stored must not be taken for stored.
func (b *batch) ended(err error) {
	if err != nil {
		b.stored = AppendResult{}
		b.w.last.clear()
		clear(b.w.reached)
		clear(b.w.late)
	} else if !b.Empty() {
		b.w.unsaved = nil
	}
	b.w.last.shrink()
	if b.versions != nil {
		_ = b.versions.Close() // what went wrong was returned before
	}
	_ = b.Close() // it gives back memory
	<-b.w.busy
}

// batch is one call of Append.
type batch struct {
	*pebble.Batch
	db      *database
	w       *Writer
	written map[string]bool           // keys of versions and notices that are not committed
	alive   map[string]lifeEntry      // by object, what is not committed
	spans   map[string]keys.IndexSpan // of entries of indexes that are not committed
	reached []*record.Unit            // that have reached something new
	// versions are those in the database; nil until one is looked for.
	versions *pebble.Iterator
	stored   AppendResult
	// Memory that is used again.
	names, entry []byte
}

func (b *batch) fill(events []*event.Event, positions []SourcePosition) error {
	for _, e := range events {
		if err := b.tryAdd(e); err != nil {
			return err
		}
	}
	for _, u := range b.w.unsaved {
		value, err := b.db.units.stored(u)
		if err == nil {
			err = b.Set(u.Key(), value, nil)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(b.storeReached(), b.storeNewest(events)); err != nil {
		return err
	}
	for _, p := range positions {
		if err := b.Set(keys.Position(p.Name), p.Position, nil); err != nil {
			return err
		}
	}
	return nil
}

// tryAdd makes an error of a panic, so that the writer is released.
func (b *batch) tryAdd(e *event.Event) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = event.NewPanicError(recovered)
		}
	}()
	return b.store(e)
}

func (b *batch) store(e *event.Event) error {
	u, isNew := b.db.units.unitOf(e)
	if isNew {
		b.w.unsaved = append(b.w.unsaved, u)
	}
	if e.Op == event.Attributed { // of a stream that is read: this database has no audit log
		if json.Unmarshal(e.Data, new(query.ActorReport)) != nil {
			return nil // whoever wrote it says nothing
		}
		seq := keys.ParseSequence(e.Sequence, e.ResourceVersion, strings.HasSuffix(e.Sequence, ".deleted"))
		return b.Set(keys.Actor(u.Number, keys.Seconds(record.TimeOf(e)), e.Namespace, e.Name, seq), e.Data, nil)
	}
	if e.AboutInformer() || e.UID == "" || e.ResourceVersion == "" || e.Name == "" ||
		e.Resource == "" || record.OpCode(e.Op) == 0 {
		return b.storeNotice(u, e)
	}
	if err := b.checkCluster(e); err != nil {
		return err
	}
	return b.addVersion(u, e)
}

// checkCluster knows a cluster by the uid of its namespace kube-system, which can't be recreated.
func (b *batch) checkCluster(e *event.Event) error {
	if e.Name != "kube-system" || e.Resource != "namespaces" || e.Group != "" ||
		e.Op == event.Deleted {
		return nil
	}
	key := keys.Meta("cluster" + e.Source)
	known, err := b.db.get(key)
	switch {
	case err != nil:
		return err
	case known == nil:
		return b.Set(key, []byte(e.UID), nil)
	case string(known) != e.UID:
		return fmt.Errorf("history %s %w: %s is the cluster with uid %s, and events come of one with "+
			"uid %s; give each cluster a name of its own (cluster), or another directory",
			b.db.dir, ErrOtherCluster, strings.TrimPrefix(e.Source, "/clusters/"), known, e.UID)
	}
	return nil
}

// addVersion stores a version of an object, unless it is there.
func (b *batch) addVersion(u *record.Unit, e *event.Event) error {
	w := b.w
	seq := keys.ParseSequence(e.Sequence, e.ResourceVersion, e.Op == event.Deleted)
	w.key = keys.AppendObject(w.key[:0], u.Number, e.Namespace, e.Name)
	object := len(w.key)
	last := w.last.get(w.key)
	w.key = seq.Append(w.key)
	isNewest := last != nil && bytes.Compare(w.key[object:], last.seq.Append(w.other[:0])) > 0
	if !isNewest {
		isThere, next, err := b.findFollower(u, seq, object, last)
		if err != nil {
			return err
		}
		if isThere {
			b.stored.Repeats++
			return nil
		}
		if next == nil {
			isNewest = true
		} else if err := b.setNext(next); err != nil {
			return err
		}
	}
	was, err := b.aliveOf(w.key[:object], last)
	if err != nil {
		return err
	}
	if e.Inferred && isNewest && !was.isThere {
		isThere, err := b.hasDelete(u, e, last)
		if err != nil {
			return err
		}
		if isThere {
			b.stored.Repeats++
			return nil
		}
	}
	data, err := b.dataOf(u, e, last, seq)
	if err != nil {
		return err
	}
	stored := *e
	if len(data) > 0 && e.DataType == event.MergePatchContentType && !bytes.Equal(data, e.Data) {
		stored.DataType = "" // it is the object now
	}
	v := lastVersion{seq: seq, data: len(data)}
	if seq.Deleted {
		v.deleteID = strings.Clone(e.ID)
	}
	if v.alive, err = b.addToLives(u, &stored, seq, w.key[:object], was, last, isNewest); err != nil {
		return err
	}
	d := record.Derive(u, &stored, seq)
	if v.text, v.deltas, err = b.setVersion(&stored, &d, seq, data, last, isNewest); err != nil {
		return err
	}
	if err := b.addToTimeline(u, &stored, &d, data, &v, last, isNewest, was.isThere); err != nil {
		return err
	}
	if err := b.addToUnsent(&stored); err != nil {
		return err
	}
	b.written[string(w.key)] = true
	switch {
	case isNewest && last != nil:
		v.object = last.object
		w.spare = w.last.put(v)
	case isNewest:
		v.object = string(w.key[:object])
		w.spare = w.last.put(v)
	case last != nil:
		last.alive = v.alive
	}
	b.stored.Versions++
	return errors.Join(b.reach(u, seq), b.addToLate(u, &stored))
}

// findFollower looks where the version of w.key belongs that follows none in memory: whether it is
// stored, and which one comes next; nil for none. object is the length of the prefix.
func (b *batch) findFollower(
	u *record.Unit, seq keys.Sequence, object int, last *lastVersion,
) (isThere bool, next *followingVersion, err error) {
	key := b.w.key
	if last == nil {
		isBeyond, err := b.isBeyond(u, seq)
		if err != nil || isBeyond {
			return false, nil, err
		}
	}
	if isThere, err = b.has(key); err != nil || isThere {
		return isThere, nil, err
	}
	next, err = b.versionAfter(u, object, last)
	return false, next, err
}

// hasDelete reports whether the newest version of an object is the delete that a list has inferred.
// A crash can lose what a watch reported, after it was sent: the two events then have one id and
// two sequences.
func (b *batch) hasDelete(u *record.Unit, e *event.Event, last *lastVersion) (bool, error) {
	if last != nil {
		return last.deleteID == e.ID, nil
	}
	newest, err := query.NewestVersion(b.db, &query.Object{Unit: u, Namespace: e.Namespace, Name: e.Name})
	if err != nil || newest == nil {
		if errors.Is(err, ErrDamaged) {
			err = nil // damage refuses no event
		}
		return false, err
	}
	return newest.Event.ID == e.ID, nil
}

// followingVersion is the one behind a version that comes late.
type followingVersion struct {
	keys.Entry
	op event.Op
	// whole is set where it is stored as a difference to the one before the late one.
	whole []byte
}

// allVersions are the keys of the versions of all objects.
var allVersions = pebble.IterOptions{
	LowerBound: []byte{keys.SpaceVersion},
	UpperBound: []byte{keys.SpaceVersion + 1},
}

// versionAfter returns the version behind w.key, nil for none. Where the object is not in memory,
// this batch has stored none but late ones of it, which are whole: the next one in the database is
// meant.
func (b *batch) versionAfter(u *record.Unit, object int, last *lastVersion) (next *followingVersion, err error) {
	prefix := bytes.Clone(b.w.key[:object])
	it := b.versions
	if last != nil {
		// Few versions come late: then it pays to copy the batch, so as to read what it stores.
		indexed := b.db.pebble.NewIndexedBatch()
		defer func() { _ = indexed.Close() }() // it gives back memory
		if err := indexed.Apply(b.Batch, nil); err != nil {
			return nil, err
		}
		if it, err = indexed.NewIter(&allVersions); err != nil {
			return nil, err
		}
		defer func() { err = cmp.Or(err, it.Close()) }()
	} else if it == nil {
		if it, err = b.db.pebble.NewIter(&allVersions); err != nil {
			return nil, err
		}
		b.versions = it
	}
	if !it.SeekGE(append(bytes.Clone(b.w.key), 0)) || !bytes.HasPrefix(it.Key(), prefix) {
		return nil, it.Error()
	}
	_, namespace, name, seq, ok := keys.SplitVersion(it.Key())
	value, err := it.ValueAndErr()
	if err != nil || !ok {
		return nil, cmp.Or(err, record.ErrUnreadable)
	}
	h, err := record.ReadHeader(value)
	if err != nil {
		return nil, err
	}
	next = &followingVersion{op: h.Op}
	next.Entry = keys.Entry{
		Source: u.SourceNumber, Namespace: namespace, Second: keys.Seconds(h.Time),
		Version: seq.Version, Unit: u.Number, Name: name, Seq: seq,
	}
	if h.Kind == record.Delta {
		if next.whole, err = query.Rebased(it,
			&query.Object{Unit: u, Namespace: namespace, Name: name}, seq, h); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// setNext lets the next version of a late one be without what it has changed, and without a
// difference to another one than the version before it.
func (b *batch) setNext(next *followingVersion) error {
	if next.whole != nil {
		key := next.Seq.Append(keys.AppendObject(nil, next.Unit, next.Namespace, next.Name))
		if err := b.Set(key, next.whole, nil); err != nil {
			return err
		}
	}
	return b.Set(next.Append(nil), []byte{record.OpCode(next.op)}, nil)
}

// setVersion stores a version as a difference to the last one, where that is shorter.
func (b *batch) setVersion(
	e *event.Event, d *record.DerivedAttributes, seq keys.Sequence, data []byte, last *lastVersion, isNewest bool,
) (text []byte, deltas int, err error) {
	w := b.w
	const most, slack = 256, 512
	if text, w.spare = w.spare[:0], nil; cap(text) < len(data)+most ||
		cap(text) > len(data)+most+slack {
		text = make([]byte, 0, len(data)+most)
	}
	if last != nil && isNewest && last.deltas < record.MaxDeltas && !last.seq.Deleted &&
		last.seq.IsNumber() && seq.IsNumber() &&
		last.seq.Era == seq.Era && last.seq.Entered == seq.Entered {
		text = record.AppendText(text, d, e, seq, data, last.seq.ResourceVersion())
		w.value = w.delta.AppendDelta(w.value[:0], e.Op, record.TimeOf(e), seq.Version-last.seq.Version,
			last.text, text)
		if len(w.value) < len(text)/2 {
			return text, last.deltas + 1, b.Set(w.key, w.value, nil)
		}
		text = text[:0]
	}
	text = record.AppendText(text, d, e, seq, data, "")
	w.value = record.AppendWhole(w.value[:0], e.Op, record.TimeOf(e), text)
	return text, 0, b.Set(w.key, w.value, nil)
}

// has reports whether a version is stored.
func (b *batch) has(key []byte) (bool, error) {
	if b.written[string(key)] {
		return true, nil
	}
	_, closer, err := b.db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// addToTimeline notes what happened, by namespace and time, and what it changed, where the version
// before is at hand, and what that means for indexes. It fills in the shape and the form of v.
func (b *batch) addToTimeline(
	u *record.Unit, e *event.Event, d *record.DerivedAttributes, data []byte, v, last *lastVersion, isNewest,
	hasAlive bool,
) error {
	w := b.w
	entry := keys.Entry{
		Source: u.SourceNumber, Namespace: e.Namespace, Second: keys.Seconds(record.TimeOf(e)),
		Version: v.seq.Version, Unit: u.Number, Name: e.Name, Seq: v.seq,
	}
	w.other = entry.Append(w.other[:0])
	if !isNewest || last == nil && hasAlive {
		if isNewest {
			v.shape = diff.ShapeOf(data, nil, nil)
			v.form = record.FormOf(v.shape, data, e.DataType)
		}
		return cmp.Or(b.addToIndexes(u, e, data, v, last, isNewest, nil, false),
			b.Set(w.other, []byte{record.OpCode(e.Op)}, nil))
	}
	var before *keys.Sequence
	var changes []diff.Change
	isCompared := false
	flags := byte(0)
	if last == nil || last.seq.Deleted {
		v.shape = diff.ShapeOf(data, nil, nil)
		v.form = record.FormOf(v.shape, data, e.DataType)
	} else {
		before, flags = &last.seq, record.HasBefore
		older := last.objectJSON()
		v.shape = diff.ShapeOf(data, older, last.shape)
		v.form = record.FormOf(v.shape, data, e.DataType)
		if v.form == last.form && v.form != record.FormNone && v.form != record.FormPatch {
			changes = diff.ChangesByShape(older, last.shape, data, v.shape)
			isCompared = true
		}
	}
	if err := b.addToIndexes(u, e, data, v, last, isNewest, changes, isCompared); err != nil {
		return err
	}
	s := record.Summarize(v.form, flags, changes)
	w.value = s.Append(w.value[:0], e, d, v.seq, before, &w.fields)
	return b.Set(w.other, w.value, nil)
}

// lateTime is a time in which changes were made that became known late.
type lateTime struct{ since, until uint32 }

// addToLate notes when a change that became known late may have been made. Such times are joined,
// so they are about as many as restarts.
func (b *batch) addToLate(u *record.Unit, e *event.Event) error {
	if e.NotBefore.IsZero() {
		return nil
	}
	last, known := b.w.late[u.Number]
	if !known {
		var err error
		if last, err = b.db.lastLate(u); err != nil {
			return err
		}
	}
	// A second more on each side: what is asked for is finer.
	now := lateTime{keys.Seconds(e.NotBefore), keys.Seconds(record.TimeOf(e)) + 1}
	if last.since > 0 && now.since <= last.until && now.until >= last.since {
		if now.since < last.since {
			if err := b.Delete(keys.Late(u.Number, last.since), nil); err != nil {
				return err
			}
		}
		now = lateTime{min(now.since, last.since), max(now.until, last.until)}
	}
	if b.w.late == nil {
		b.w.late = map[uint32]lateTime{}
	}
	if b.w.late[u.Number] = now; now == last {
		return nil
	}
	return b.Set(keys.Late(u.Number, now.since), binary.BigEndian.AppendUint32(nil, now.until), nil)
}

// lastLate reads the newest late time of a unit, zero for none.
func (db *database) lastLate(u *record.Unit) (l lateTime, err error) {
	prefix := keys.InUnit(nil, keys.SpaceLate, u.Number)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		return l, err
	}
	defer it.Close()
	if !it.Last() {
		return l, it.Error()
	}
	value, err := it.ValueAndErr()
	if err != nil || len(value) != 4 || len(it.Key()) != len(prefix)+4 {
		return l, cmp.Or(err, record.ErrUnreadable)
	}
	return lateTime{
		binary.BigEndian.Uint32(it.Key()[len(prefix):]), binary.BigEndian.Uint32(value),
	}, nil
}

// storeNotice stores what the stream says about itself, and what is no version of an object.
func (b *batch) storeNotice(u *record.Unit, e *event.Event) error {
	one := *e
	id, partition, _ := strings.Cut(e.ID, "/partition/") // each partition of a topic has a copy
	one.ID = id
	document := event.AppendStructured(nil, &one)
	if e.Op == event.Progress && e.AboutInformer() {
		// The newest of each partition is enough: some are read later than others.
		scope, _, _ := strings.Cut(id, "/progress/")
		if err := b.Set(keys.Progress(u.Number, scope+"/"+partition), document, nil); err != nil {
			return err
		}
		if m, err := query.ReadNotice(u, document); err != nil || !m.IsUnwatched() {
			return err
		}
	}
	key := keys.Notice(u.Number, keys.Seconds(record.TimeOf(e)), id)
	isThere, err := b.has(key)
	if err != nil {
		return err
	}
	if isThere {
		b.stored.Repeats++
		return nil
	}
	b.written[string(key)] = true
	b.stored.Notices++
	return b.Set(key, document, nil)
}
