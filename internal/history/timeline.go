package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Step is a version of an object, or its end, and the version before: nil where there is none, it
// is not known, or the object had ended.
type Step struct {
	*Version
	Before *Version
}

// Entries are what happened in a namespace of a cluster, or in all of them for "*", from one time
// to another, in the order of time: by seconds, and in each by resourceVersion, which is the order
// of the cluster. "" is what is in no namespace. wanted chooses units, before a version is read.
// An entry may be read until the next one is asked for. The error is the last element.
func (h Timeline) Entries(
	cluster, namespace string, since, until time.Time, wanted func(u *Unit) bool,
) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
		var read Version
		t.yield = func(e *timelineEntry, u *Unit, value []byte) (bool, error) {
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
			return yield(entry, nil), nil
		}
		if err := t.run(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// Steps are Entries with the versions themselves, and those before.
func (h Timeline) Steps(
	cluster, namespace string, since, until time.Time, wanted func(u *Unit) bool,
) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
		t.yield = func(e *timelineEntry, u *Unit, _ []byte) (bool, error) {
			v, before, err := t.read(e, u)
			if v == nil || err != nil {
				return err == nil, err
			}
			return yield(Step{v, before}, nil), nil
		}
		if err := t.run(); err != nil {
			yield(Step{}, h.db.ReadError(err))
		}
	}
}

func newTimelineWalk(
	db Source, cluster, namespace string, since, until time.Time, wanted func(u *Unit) bool,
) *timelineWalk {
	t := &timelineWalk{
		db: db, namespace: namespace, since: unixSeconds(since), until: math.MaxUint32,
		wanted: wanted,
	}
	if !until.IsZero() {
		t.until = unixSeconds(until)
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
	db           Source
	source       uint32
	namespace    string // "*" for all
	since, until uint32
	wanted       func(u *Unit) bool
	// yield is given a key with its value. It reports whether to continue.
	yield func(e *timelineEntry, u *Unit, value []byte) (bool, error)
	it    *pebble.Iterator
	r     *reader // nil until a version is read
}

func (t *timelineWalk) run() (err error) {
	prefix := binary.BigEndian.AppendUint32([]byte{spaceTimeline}, t.source)
	if t.it, err = t.db.NewIter(&pebble.IterOptions{
		LowerBound: prefix,
		UpperBound: after(prefix),
	}); err != nil {
		return err
	}
	defer t.it.Close()
	defer func() {
		if t.r != nil {
			t.r.Close()
		}
	}()
	for bucket := t.since / bucketSeconds; ; bucket++ {
		if !t.it.SeekGE(appendBucket(nil, t.source, bucket)) {
			return t.it.Error()
		}
		found := binary.BigEndian.Uint32(t.it.Key()[5:]) // later, where nothing happened
		if bucket = found; bucket > t.until/bucketSeconds {
			return nil
		}
		goOn, err := t.bucket(bucket)
		if err != nil || !goOn {
			return err
		}
		if bucket == math.MaxUint32/bucketSeconds {
			return nil
		}
	}
}

// bucket gives what is in a bucket. It reports whether to go on.
func (t *timelineWalk) bucket(bucket uint32) (bool, error) {
	prefix := appendBucket(nil, t.source, bucket)
	if t.namespace != "*" {
		prefix = append(append(prefix, t.namespace...), separator)
		from := binary.BigEndian.AppendUint32(bytes.Clone(prefix), t.since)
		for ok := t.it.SeekGE(from); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Next() {
			e, isKey := decodeTimeline(t.it.Key())
			value, err := t.it.ValueAndErr()
			if err != nil || !isKey {
				return false, cmp.Or(err, errRecord)
			}
			if e.second > t.until {
				break
			}
			if goOn, err := t.give(&e, value); err != nil || !goOn {
				return false, err
			}
		}
		return true, t.it.Error()
	}
	// All namespaces: sorted in pieces, so that memory does not follow what happened.
	var last timelineEntry
	for first := true; ; first = false {
		piece, more, err := t.piece(prefix, last, first)
		if err != nil {
			return false, err
		}
		for i := range piece {
			if goOn, err := t.give(&piece[i].timelineEntry, piece[i].value); err != nil || !goOn {
				return false, err
			}
		}
		if !more {
			return true, nil
		}
		last = piece[len(piece)-1].timelineEntry
	}
}

// maxPiece is how many entries are sorted at once. One takes about half a kilobyte.
const maxPiece = 1 << 13

// timelineItem is an entry with its value.
type timelineItem struct {
	timelineEntry
	value []byte
}

// piece are the next entries of a bucket behind one of them, in the order of time.
func (t *timelineWalk) piece(
	prefix []byte, behind timelineEntry, first bool,
) (piece []timelineItem, more bool, err error) {
	for ok := t.it.SeekGE(prefix); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Next() {
		e, isKey := decodeTimeline(t.it.Key())
		if !isKey {
			return nil, false, errRecord
		}
		if e.second < t.since || e.second > t.until || !first && e.compare(&behind) <= 0 {
			continue
		}
		value, err := t.it.ValueAndErr()
		if err != nil {
			return nil, false, err
		}
		piece = append(piece, timelineItem{e, bytes.Clone(value)})
		if len(piece) == 2*maxPiece { // keep the earlier half
			slices.SortFunc(piece, compareItems)
			piece, more = piece[:maxPiece], true
		}
	}
	slices.SortFunc(piece, compareItems)
	if len(piece) > maxPiece {
		piece, more = piece[:maxPiece], true
	}
	return piece, more, t.it.Error()
}

func compareItems(a, b timelineItem) int { return a.compare(&b.timelineEntry) }

// give gives an entry, where it is asked for.
func (t *timelineWalk) give(e *timelineEntry, value []byte) (bool, error) {
	if e.second < t.since || e.second > t.until {
		return true, nil
	}
	u := t.db.Unit(e.unit)
	if u == nil {
		return false, errRecord
	}
	if t.wanted != nil && !t.wanted(u) {
		return true, nil
	}
	return t.yield(e, u, value)
}

// read reads an entry's version and the one before. Both are nil where retention has removed it.
func (t *timelineWalk) read(e *timelineEntry, u *Unit) (v, before *Version, err error) {
	if t.r == nil {
		if t.r, err = newReader(t.db); err != nil {
			return nil, nil, err
		}
	}
	key := e.seq.append(appendObject(nil, u.Number, e.namespace, e.name))
	if !t.r.it.SeekGE(key) || !bytes.Equal(t.r.it.Key(), key) {
		return nil, nil, t.r.err()
	}
	if v, err = t.r.version(); err == nil {
		before, err = t.r.before(u, e.namespace, e.name, e.seq)
	}
	return v, before, err
}

// before is the version before one of an object, nil where there is none, or the object had ended.
func (r *reader) before(u *Unit, namespace, name string, seq sequence) (*Version, error) {
	prefix := appendObject(nil, u.Number, namespace, name)
	if !r.it.SeekLT(seq.append(bytes.Clone(prefix))) || !bytes.HasPrefix(r.it.Key(), prefix) {
		return nil, r.err()
	}
	v, err := r.version()
	if err != nil || v.Deleted() {
		return nil, err
	}
	return v, nil
}

// Newest is the time of the newest entry of a cluster, zero when there is none.
func (h Timeline) Newest(cluster string) (newest time.Time, err error) {
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster {
			continue
		}
		prefix := binary.BigEndian.AppendUint32([]byte{spaceTimeline}, u.SourceNumber)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			return newest, h.db.ReadError(err)
		}
		if it.Last() {
			last := bytes.Clone(it.Key()[:9])
			second := uint32(0)
			for ok := it.SeekGE(last); ok; ok = it.Next() {
				if e, isKey := decodeTimeline(it.Key()); isKey {
					second = max(second, e.second)
				}
			}
			newest = time.Unix(int64(second), 0)
		}
		return newest, h.db.ReadError(cmp.Or(it.Error(), it.Close()))
	}
	return newest, nil
}
