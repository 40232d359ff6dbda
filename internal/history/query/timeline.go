package query

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Step is a version of an object, or its end, and the version before: nil where there is none, it
// is not known, or the object had ended.
type Step struct {
	*Version
	Before *Version
	// Overtaken is set when a higher version of the name has an earlier time: this one had happened
	// by then, but was observed later. It changes nothing at its own time.
	Overtaken bool
	// Ended is the overtaken delete of the object that had the name before this one, and Last is
	// what that object was before this step. Both are nil when there is none.
	Ended, Last *Version
}

// Entries returns what happened in a namespace of a cluster, or in all of them for "*", from one
// time to another. They are in the order of time: by seconds, and in each by resourceVersion, which
// is the order of the cluster. "" is what is in no namespace. wanted chooses units, before a
// version is read. An entry may be read until the next one is asked for. The error is the last
// element.
func (h Timeline) Entries(
	cluster, namespace string, since, until time.Time, wanted func(u *record.Unit) bool,
) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
		t.yield = t.yieldEntries(yield)
		if err := t.run(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// yieldEntries makes an entry of what the walk finds.
func (t *timelineWalk) yieldEntries(
	yield func(*Entry, error) bool,
) func(e *keys.Entry, u *record.Unit, value []byte) (bool, error) {
	var read Version
	return func(e *keys.Entry, u *record.Unit, value []byte) (bool, error) {
		entry, err := readEntry(&read, u, e, value)
		if err != nil {
			return false, err
		}
		if entry == nil {
			v, before, err := t.read(e, u)
			if v == nil || err != nil {
				return err == nil, err
			}
			entry = summarized(v, before)
		}
		entry.Cursor = Cursor{*e}
		return yield(entry, nil), nil
	}
}

// Steps are Entries with the versions themselves, and those before.
func (h Timeline) Steps(
	cluster, namespace string, since, until time.Time, wanted func(u *record.Unit) bool,
) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
		t.yield = func(e *keys.Entry, u *record.Unit, _ []byte) (bool, error) {
			v, before, err := t.read(e, u)
			if v == nil || err != nil {
				return err == nil, err
			}
			step := Step{Version: v, Before: before}
			if err := t.r.order(&step, &Object{u, e.Namespace, e.Name}); err != nil {
				return false, err
			}
			return yield(step, nil), nil
		}
		if err := t.run(); err != nil {
			yield(Step{}, h.db.ReadError(err))
		}
	}
}

// Objects returns the objects that something happened to, in no order. It costs a tenth of Entries.
func (h Timeline) Objects(
	cluster, namespace string, since, until time.Time, wanted func(u *record.Unit) bool,
) ([]Object, error) {
	t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
	t.isUnordered = true
	seen := map[Object]struct{}{}
	t.yield = func(e *keys.Entry, u *record.Unit, _ []byte) (bool, error) {
		seen[Object{u, e.Namespace, e.Name}] = struct{}{}
		return true, nil
	}
	err := h.db.ReadError(t.run())
	return slices.Collect(maps.Keys(seen)), err
}

func newTimelineWalk(
	db DB, cluster, namespace string, since, until time.Time, wanted func(u *record.Unit) bool,
) *timelineWalk {
	t := &timelineWalk{
		db: db, namespace: namespace, since: keys.Seconds(since), until: math.MaxUint32,
		wanted: wanted,
	}
	if !until.IsZero() {
		t.until = keys.Seconds(until)
	}
	for _, u := range db.Units() {
		if u.Cluster() == cluster {
			t.source = u.SourceNumber
		}
	}
	return t
}

// timelineWalk is one answer.
type timelineWalk struct {
	db           DB
	source       uint32
	namespace    string // "*" for all
	since, until uint32
	wanted       func(u *record.Unit) bool
	// isReversed: the newest first. behind is the entry behind which the walk begins, nil for none.
	isReversed bool
	behind     *keys.Entry
	// isUnordered: within a bucket in any order, which costs less.
	isUnordered bool
	// yield is given a key with its value. It reports whether to continue.
	yield func(e *keys.Entry, u *record.Unit, value []byte) (bool, error)
	it    *pebble.Iterator
	r     *reader // nil until a version is read
}

func (t *timelineWalk) run() (err error) {
	prefix := keys.Timeline(t.source)
	if t.it, err = t.db.NewIter(&pebble.IterOptions{
		LowerBound: prefix,
		UpperBound: keys.After(prefix),
	}); err != nil {
		return err
	}
	defer t.it.Close()
	defer func() {
		if t.r != nil {
			t.r.Close()
		}
	}()
	if t.isReversed {
		return t.runReversed()
	}
	for bucket := t.since / keys.BucketSeconds; ; bucket++ {
		if !t.it.SeekGE(keys.AppendBucket(nil, t.source, bucket)) {
			return t.it.Error()
		}
		found := binary.BigEndian.Uint32(t.it.Key()[5:]) // later, where nothing happened
		if bucket = found; bucket > t.until/keys.BucketSeconds {
			return nil
		}
		hasMore, err := t.bucket(bucket)
		if err != nil || !hasMore {
			return err
		}
		if bucket == math.MaxUint32/keys.BucketSeconds {
			return nil
		}
	}
}

// bucket yields what is in a bucket. It reports whether to continue.
func (t *timelineWalk) bucket(bucket uint32) (bool, error) {
	prefix := keys.AppendBucket(nil, t.source, bucket)
	from := prefix
	if t.namespace != "*" {
		prefix = keys.AppendName(prefix, t.namespace)
		from = binary.BigEndian.AppendUint32(bytes.Clone(prefix), t.since)
	}
	if t.namespace != "*" || t.isUnordered {
		for ok := t.it.SeekGE(from); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Next() {
			e, isKey := keys.DecodeEntry(t.it.Key())
			value, err := t.it.ValueAndErr()
			if err != nil || !isKey {
				return false, cmp.Or(err, record.ErrUnreadable)
			}
			if e.Second > t.until && t.namespace != "*" {
				break
			}
			if hasMore, err := t.give(&e, value); err != nil || !hasMore {
				return false, err
			}
		}
		return true, t.it.Error()
	}
	return t.pieces(prefix)
}

// maxPiece is how many entries are sorted at once. One takes about half a kilobyte.
const maxPiece = 1 << 13

// timelineItem is an entry with its value.
type timelineItem struct {
	keys.Entry
	value []byte
}

// piece returns the next entries of a bucket behind one of them, in the order of time.
func (t *timelineWalk) piece(
	prefix []byte, behind keys.Entry, first bool,
) (piece []timelineItem, more bool, err error) {
	for ok := t.it.SeekGE(prefix); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Next() {
		e, isKey := keys.DecodeEntry(t.it.Key())
		if !isKey {
			return nil, false, record.ErrUnreadable
		}
		if e.Second < t.since || e.Second > t.until || !first && t.compare(&e, &behind) <= 0 {
			continue
		}
		value, err := t.it.ValueAndErr()
		if err != nil {
			return nil, false, err
		}
		piece = append(piece, timelineItem{e, bytes.Clone(value)})
		if len(piece) == 2*maxPiece { // keep the first half
			t.sort(piece)
			piece, more = piece[:maxPiece], true
		}
	}
	t.sort(piece)
	if len(piece) > maxPiece {
		piece, more = piece[:maxPiece], true
	}
	return piece, more, t.it.Error()
}

// give yields an entry, where it is asked for.
func (t *timelineWalk) give(e *keys.Entry, value []byte) (bool, error) {
	if e.Second < t.since || e.Second > t.until || t.behind != nil && t.compare(e, t.behind) <= 0 {
		return true, nil
	}
	u := t.db.Unit(e.Unit)
	if u == nil {
		return false, record.ErrUnreadable
	}
	if t.wanted != nil && !t.wanted(u) {
		return true, nil
	}
	return t.yield(e, u, value)
}

// read reads an entry's version and the one before. Both are nil where retention has removed it.
func (t *timelineWalk) read(e *keys.Entry, u *record.Unit) (v, before *Version, err error) {
	if t.r == nil {
		if t.r, err = newReader(t.db); err != nil {
			return nil, nil, err
		}
	}
	key := e.Seq.Append(keys.AppendObject(nil, u.Number, e.Namespace, e.Name))
	if !t.r.it.SeekGE(key) || !bytes.Equal(t.r.it.Key(), key) {
		return nil, nil, t.r.err()
	}
	if v, err = t.r.version(); err == nil {
		before, err = t.r.before(u, e.Namespace, e.Name, e.Seq)
	}
	return v, before, err
}

// before returns the version before one of an object, nil where there is none, or the object had
// ended.
func (r *reader) before(u *record.Unit, namespace, name string, seq keys.Sequence) (*Version, error) {
	prefix := keys.AppendObject(nil, u.Number, namespace, name)
	if !r.it.SeekLT(seq.Append(bytes.Clone(prefix))) || !bytes.HasPrefix(r.it.Key(), prefix) {
		return nil, r.err()
	}
	v, err := r.version()
	if err != nil || v.Deleted() {
		return nil, err
	}
	return v, nil
}

// Whole returns all changes of an entry with all values; what the entry has where retention has
// removed the version.
func (h Timeline) Whole(e *Entry) ([]diff.Change, error) {
	r, err := newReader(h.db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	v, err := r.atSequence(e.Unit, e.Event.Namespace, e.Event.Name, e.seq)
	if v == nil || err != nil {
		return e.Changes, err
	}
	before, err := r.before(e.Unit, e.Event.Namespace, e.Event.Name, e.seq)
	if before == nil || err != nil {
		return e.Changes, err
	}
	return v.ChangesSince(before), nil
}

// Newest returns the time of the newest entry of a cluster, zero when there is none.
func (h Timeline) Newest(cluster string) (newest time.Time, err error) {
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster {
			continue
		}
		prefix := keys.Timeline(u.SourceNumber)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			return newest, h.db.ReadError(err)
		}
		if it.Last() {
			last := bytes.Clone(it.Key()[:9])
			second := uint32(0)
			for ok := it.SeekGE(last); ok; ok = it.Next() {
				if e, isKey := keys.DecodeEntry(it.Key()); isKey {
					second = max(second, e.Second)
				}
			}
			newest = time.Unix(int64(second), 0)
		}
		return newest, h.db.ReadError(cmp.Or(it.Error(), it.Close()))
	}
	return newest, nil
}

// order finds out where the order of time is not that of a name's versions, which is what happened.
// The example is at lastBefore: there v49 is Overtaken, and v50 has it as Ended.
func (r *reader) order(s *Step, o *Object) (err error) {
	prefix := o.prefix()
	era := binary.BigEndian.AppendUint32(bytes.Clone(prefix), s.seq.Era)
	key := s.seq.Append(bytes.Clone(prefix))
	if s.Overtaken, err = r.isOvertaken(s, era, key); err != nil || s.Overtaken {
		return err
	}
	if s.Before != nil || s.Deleted() || !r.it.SeekLT(key) || !bytes.HasPrefix(r.it.Key(), era) {
		return r.it.Error()
	}
	end, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
	observed, err := r.time()
	if err != nil || !ok || !end.Deleted || !observed.After(s.Time) {
		return err
	}
	// What a reader in the order of time has of the name. It may be an object before the one that
	// ended: several may have come and gone in one backlog.
	seq, found, err := r.lastBefore(o, s.Time)
	if err != nil || !found || seq.Deleted {
		return err
	}
	if s.Last, err = r.atSequence(o.Unit, o.Namespace, o.Name, seq); err != nil || s.Last == nil {
		return err
	}
	s.Ended, err = r.atSequence(o.Unit, o.Namespace, o.Name, end)
	return err
}

// isOvertaken reports whether a higher version in the era has an earlier time. A time from
// managedFields is when the change was made, so nothing that followed is earlier.
func (r *reader) isOvertaken(s *Step, era, key []byte) (bool, error) {
	if s.Event.TimeSource == event.TimeManagedFields || !r.it.SeekGE(key) {
		return false, r.it.Error()
	}
	for r.it.Next() && bytes.HasPrefix(r.it.Key(), era) {
		t, err := r.time()
		if err != nil || t.Before(s.Time) {
			return err == nil, err
		}
		if t.After(s.Time.Add(catchUp)) {
			return false, nil
		}
	}
	return false, r.it.Error()
}

// Cursor is the place of an entry in a timeline.
type Cursor struct{ entry keys.Entry }

// String returns the cursor for ParseCursor.
func (c *Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(c.entry.Append(nil))
}

// errCursor is about a cursor that no answer had.
var errCursor = errors.New("want the cursor of an answer, as it was")

// ParseCursor reads a cursor of an earlier answer; nil for "".
func ParseCursor(text string) (*Cursor, error) {
	if text == "" {
		return nil, nil
	}
	key, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, errCursor)
	}
	entry, ok := keys.DecodeEntry(key)
	if !ok || !bytes.Equal(entry.Append(nil), key) {
		return nil, fmt.Errorf("%q: %w", text, errCursor)
	}
	return &Cursor{entry}, nil
}

// NewestFirst returns the same as Entries, the newest first: in the reverse order. With a cursor it
// returns what is before that: the cursor of the last entry of an answer continues it.
func (h Timeline) NewestFirst(
	cluster, namespace string, since, until time.Time, before *Cursor,
	wanted func(u *record.Unit) bool,
) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
		if t.isReversed = true; before != nil {
			t.behind = &before.entry
			t.until = min(t.until, before.entry.Second)
		}
		t.yield = t.yieldEntries(yield)
		if err := t.run(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// runReversed visits buckets from the last one to the first.
func (t *timelineWalk) runReversed() error {
	prefix := keys.Timeline(t.source)
	end := keys.After(prefix)
	if last := t.until / keys.BucketSeconds; last < (1<<32-1)/keys.BucketSeconds {
		end = keys.AppendBucket(nil, t.source, last+1)
	}
	for t.it.SeekLT(end) {
		bucket := binary.BigEndian.Uint32(t.it.Key()[len(prefix):])
		if bucket < t.since/keys.BucketSeconds {
			return nil
		}
		hasMore, err := t.bucketReversed(bucket)
		if err != nil || !hasMore {
			return err
		}
		end = keys.AppendBucket(nil, t.source, bucket)
	}
	return t.it.Error()
}

// bucketReversed yields what is in a bucket. It reports whether to continue.
func (t *timelineWalk) bucketReversed(bucket uint32) (bool, error) {
	prefix := keys.AppendBucket(nil, t.source, bucket)
	if t.namespace == "*" {
		return t.pieces(prefix)
	}
	prefix = keys.AppendName(prefix, t.namespace)
	for ok := t.it.SeekLT(keys.After(prefix)); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Prev() {
		e, isKey := keys.DecodeEntry(t.it.Key())
		value, err := t.it.ValueAndErr()
		if err != nil || !isKey {
			return false, cmp.Or(err, record.ErrUnreadable)
		}
		if e.Second < t.since {
			break
		}
		if hasMore, err := t.give(&e, value); err != nil || !hasMore {
			return false, err
		}
	}
	return true, t.it.Error()
}

// pieces yields a bucket of all namespaces: sorted in pieces, so that memory does not follow what
// happened.
func (t *timelineWalk) pieces(prefix []byte) (bool, error) {
	var last keys.Entry
	for first := true; ; first = false {
		piece, more, err := t.piece(prefix, last, first)
		if err != nil {
			return false, err
		}
		for i := range piece {
			if hasMore, err := t.give(&piece[i].Entry, piece[i].value); err != nil || !hasMore {
				return false, err
			}
		}
		if !more {
			return true, nil
		}
		last = piece[len(piece)-1].Entry
	}
}

// compare is the order of the walk.
func (t *timelineWalk) compare(a, b *keys.Entry) int {
	if t.isReversed {
		a, b = b, a
	}
	return a.Compare(b)
}

func (t *timelineWalk) sort(piece []timelineItem) {
	slices.SortFunc(piece, func(a, b timelineItem) int { return t.compare(&a.Entry, &b.Entry) })
}
