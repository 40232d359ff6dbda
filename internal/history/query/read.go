package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// reader reads versions of objects, as of when it was made.
type reader struct {
	db DB
	it *pebble.Iterator
	// hints says, by era, where objects had their versions of a time, for an answer that looks for
	// many at the same time; else nil.
	hints   map[uint32]uint64
	eras    map[*record.Unit]*eras // as far as they were asked for
	scratch scratch
	// reuses: a version, with its text, may overwrite the last one.
	reuses bool
}

// scratch is the memory of one decoding, for the next one.
type scratch struct {
	prefix, payloads []byte
	chain            []difference
	text, spare      []byte
	// The last version and its text, where they are reused.
	version Version
	given   []byte
}

// difference is a version that is stored as one.
type difference struct {
	seq keys.Sequence
	h   record.Header
}

// versionSpace are the keys of all versions.
var versionSpace = pebble.IterOptions{
	LowerBound: []byte{keys.SpaceVersion},
	UpperBound: []byte{keys.SpaceVersion + 1},
}

func newReader(db DB) (*reader, error) {
	it, err := db.NewIter(&versionSpace)
	if err != nil {
		return nil, db.ReadError(err)
	}
	return &reader{db: db, it: it}, nil
}

func (r *reader) Close() { _ = r.it.Close() } // what went wrong was returned before

// err returns why the iterator is at no key, nil at the end.
func (r *reader) err() error { return r.db.ReadError(r.it.Error()) }

// decoded is a version with its text.
type decoded struct {
	seq  keys.Sequence
	h    record.Header
	text []byte
	base string // version of its base
}

// decode makes the text of the version at the iterator, and moves it. Of the texts between only the
// last one's checksum is looked at: it covers them.
func (r *reader) decode(seq keys.Sequence, h record.Header) (v decoded, err error) {
	s := &r.scratch
	if r.reuses {
		defer func() { s.given = v.text }()
	}
	if h.Kind == record.Whole {
		return decoded{seq, h, append(s.given[:0], h.Payload...), h.Base}, nil
	}
	key, _, _, _, ok := keys.SplitVersion(r.it.Key())
	if !ok {
		return v, record.ErrUnreadable
	}
	s.prefix = append(s.prefix[:0], key...)
	s.payloads, s.chain = s.payloads[:0], s.chain[:0]
	// The differences from this version back to a whole one.
	for h.Kind == record.Delta {
		begin := len(s.payloads)
		s.payloads = append(s.payloads, h.Payload...)
		h.Payload = s.payloads[begin:]
		s.chain = append(s.chain, difference{seq, h})
		if h.Back > seq.Version || len(s.chain) > record.MaxDeltas {
			return v, record.ErrMisfit
		}
		seq = keys.Sequence{Era: seq.Era, Entered: seq.Entered, Version: seq.Version - h.Back}
		if h, err = r.back(s.prefix, seq); err != nil {
			return v, err
		}
	}
	s.text = append(s.text[:0], h.Payload...)
	for _, d := range slices.Backward(s.chain[1:]) {
		if s.spare, err = d.h.ApplyUnchecked(s.spare, s.text); err != nil {
			return v, err
		}
		seq, s.text, s.spare = d.seq, s.spare, s.text
	}
	last := &s.chain[0]
	v = decoded{seq: last.seq, h: last.h, base: seq.ResourceVersion()}
	v.text, err = last.h.Apply(s.given, s.text)
	return v, err
}

// back moves to the version before, which must be the one that is wanted.
func (r *reader) back(prefix []byte, want keys.Sequence) (h record.Header, err error) {
	if !r.it.Prev() || !bytes.HasPrefix(r.it.Key(), prefix) {
		return h, cmp.Or(r.it.Error(), record.ErrMisfit)
	}
	seq, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
	value, err := r.it.ValueAndErr()
	switch {
	case err != nil || !ok:
		return h, cmp.Or(err, record.ErrUnreadable)
	case seq != want:
		return h, record.ErrMisfit
	}
	return record.ReadHeader(value)
}

// version makes the version at the iterator, and moves it.
func (r *reader) version() (*Version, error) {
	v, err := r.readVersion()
	return v, r.db.ReadError(err)
}

func (r *reader) readVersion() (*Version, error) {
	key := r.it.Key()
	_, namespace, name, seq, ok := keys.SplitVersion(key)
	if !ok {
		return nil, record.ErrUnreadable
	}
	u := r.db.Unit(binary.BigEndian.Uint32(key[1:]))
	if u == nil {
		return nil, record.ErrUnreadable
	}
	value, err := r.it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	h, err := record.ReadHeader(value)
	if err != nil {
		return nil, err
	}
	d, err := r.decode(seq, h)
	if err != nil {
		return nil, fmt.Errorf("version %s of %s/%s/%s: %w", seq, u.GroupResource(), namespace,
			name, err)
	}
	v := &r.scratch.version
	if !r.reuses {
		v = &Version{}
	}
	return v, v.read(u, namespace, name, seq, h, d.text, d.base)
}

// atSequence returns a version, nil when it is not stored.
func (r *reader) atSequence(
	u *record.Unit, namespace, name string, seq keys.Sequence,
) (*Version, error) {
	key := seq.Append(keys.AppendObject(make([]byte, 0, 128), u.Number, namespace, name))
	isThere := r.it.Valid() && bytes.Equal(r.it.Key(), key) // lastAt mostly leaves it there
	if !isThere && (!r.it.SeekGE(key) || !bytes.Equal(r.it.Key(), key)) {
		return nil, r.err()
	}
	return r.version()
}

// Versions returns the versions of an object from one time to another, the oldest first. A zero
// time is no limit. They follow what the object was before the first time, so a delete that was
// observed later, but happened before, is not among them. The versions are the caller's. The
// error is the last element.
func (h Objects) Versions(o *Object, since, until time.Time) iter.Seq2[*Version, error] {
	return func(yield func(*Version, error) bool) {
		r, err := newReader(h.db)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		if err := r.versions(o, since, until, yield); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// versions walks forward. Of a version that follows its base the text is at hand; for any other a
// second reader walks back.
func (r *reader) versions(
	o *Object, since, until time.Time, yield func(*Version, error) bool,
) error {
	prefix := o.prefix()
	at := prefix
	if !since.IsZero() {
		seq, found, err := r.lastBefore(o, since)
		if err != nil {
			return err
		}
		if found {
			at = append(seq.Append(bytes.Clone(prefix)), math.MaxUint8) // behind it
		}
	}
	same, err := r.it.Clone(pebble.CloneOptions{}) // as of the same moment
	if err != nil {
		return err
	}
	aside := &reader{db: r.db, it: same}
	defer aside.Close()
	var last keys.Sequence
	var text []byte
	for ok := r.it.SeekGE(at); ok && bytes.HasPrefix(r.it.Key(), prefix); ok = r.it.Next() {
		seq, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
		value, err := r.it.ValueAndErr()
		if err != nil || !ok {
			return cmp.Or(err, record.ErrUnreadable)
		}
		h, err := record.ReadHeader(value)
		if err != nil {
			return err
		}
		if !until.IsZero() && h.Time.After(until) {
			continue
		}
		base := ""
		if h.Kind == record.Delta && text != nil && last.Era == seq.Era && last.Entered == seq.Entered &&
			!last.Deleted && last.Version == seq.Version-h.Back {
			base = last.ResourceVersion()
			text, err = h.Apply(nil, text)
		} else {
			if !aside.it.SeekGE(r.it.Key()) {
				return cmp.Or(aside.it.Error(), record.ErrUnreadable)
			}
			var d decoded
			d, err = aside.decode(seq, h)
			text, base = d.text, d.base
		}
		if err != nil {
			return err
		}
		last = seq
		v, err := versionOf(o.Unit, o.Namespace, o.Name, seq, h, text, base)
		if err != nil {
			return err
		}
		if !yield(v, nil) {
			return nil
		}
	}
	return r.it.Error()
}

// At returns the last version of an object at a point: nil when the object was not known then.
func (h Objects) At(o *Object, p Point) (*Version, error) {
	r, err := newReader(h.db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	seq, found, err := r.lastAt(o, p)
	if err != nil || !found {
		return nil, h.db.ReadError(err)
	}
	return r.atSequence(o.Unit, o.Namespace, o.Name, seq)
}

// Latest returns the last versions of objects that are known. It sorts these by their keys: in the
// order of time 10,000 objects take five times as long, since a block of the database, which has
// versions of several, is read for each. A version is good until the next one is asked for.
func (h Objects) Latest(objects []Object) iter.Seq2[*Version, error] {
	return func(yield func(*Version, error) bool) {
		r, err := newReader(h.db)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		r.reuses = true
		slices.SortFunc(objects, func(a, b Object) int {
			return cmp.Or(cmp.Compare(a.Unit.Number, b.Unit.Number), cmp.Compare(a.Namespace, b.Namespace),
				cmp.Compare(a.Name, b.Name))
		})
		for i := range objects {
			o := &objects[i]
			seq, isFound, err := r.lastAt(o, Point{})
			if err == nil && !isFound {
				continue
			}
			var v *Version
			if err == nil {
				v, err = r.atSequence(o.Unit, o.Namespace, o.Name, seq)
			}
			if err == nil && v == nil {
				continue
			}
			if !yield(v, h.db.ReadError(err)) || err != nil {
				return
			}
		}
	}
}

// lastAt returns the last version of an object at a point. A resourceVersion is of the newest era
// that has reached it. Where a list has not shown an object in another state since, it had the last
// one of the eras before, whichever version that has.
func (r *reader) lastAt(o *Object, p Point) (seq keys.Sequence, found bool, err error) {
	if !p.At.IsZero() {
		return r.lastBefore(o, p.At.Add(1))
	}
	prefix := o.prefix()
	end := keys.After(prefix)
	first, last, err := r.eraOf(o.Unit, p.Version)
	if err != nil {
		return seq, false, err
	}
	if last < math.MaxUint32 {
		end = binary.BigEndian.AppendUint32(bytes.Clone(prefix), last+1)
	}
	for {
		if !r.it.SeekLT(end) || !bytes.HasPrefix(r.it.Key(), prefix) {
			return seq, false, r.it.Error()
		}
		newest, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
		if !ok {
			return seq, false, record.ErrUnreadable
		}
		if p.Version == 0 || newest.Era < first {
			return newest, true, nil
		}
		era := binary.BigEndian.AppendUint32(bytes.Clone(prefix), newest.Era)
		if newest.Entered > 0 { // into which selection did it come last?
			key := binary.BigEndian.AppendUint64(append(bytes.Clone(era), keys.ClassEntered), p.Version)
			if !r.it.SeekLT(keys.After(key)) || !bytes.HasPrefix(r.it.Key(), era) {
				end = era
				continue
			}
			if newest, ok = keys.DecodeSequence(r.it.Key()[len(prefix):]); !ok {
				return seq, false, record.ErrUnreadable
			}
		}
		from := era
		if newest.Entered > 0 {
			from = binary.BigEndian.AppendUint64(append(bytes.Clone(era), keys.ClassEntered),
				newest.Entered)
		}
		key := binary.BigEndian.AppendUint64(append(bytes.Clone(from), keys.ClassNumber), p.Version)
		// Mostly the newest version is the one, and the iterator is at it.
		isNewest := newest.Entered == 0 && newest.IsNumber() && newest.Version <= p.Version
		if isNewest || r.it.SeekLT(keys.After(key)) && bytes.HasPrefix(r.it.Key(), era) {
			if seq, ok = keys.DecodeSequence(r.it.Key()[len(prefix):]); !ok {
				return seq, false, record.ErrUnreadable
			}
			isDiverged, err := r.isDiverged(prefix, seq)
			if err != nil || !isDiverged {
				return seq, err == nil, err
			}
		}
		end = era
	}
}

// All returns the objects of a unit that were ever known: of a namespace, or of all for "". The
// error is the last element.
func (h Objects) All(u *record.Unit, namespace string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		prefix := keys.InUnit(nil, keys.SpaceVersion, u.Number)
		if namespace != "" {
			prefix = keys.AppendName(prefix, namespace)
		}
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			yield(Object{}, h.db.ReadError(err))
			return
		}
		defer it.Close()
		for ok := it.First(); ok; {
			object, ns, name, _, isKey := keys.SplitVersion(it.Key())
			if !isKey {
				yield(Object{}, h.db.ReadError(record.ErrUnreadable))
				return
			}
			if !yield(Object{u, ns, name}, nil) {
				return
			}
			ok = it.SeekGE(keys.After(object))
		}
		if err := it.Error(); err != nil {
			yield(Object{}, h.db.ReadError(err))
		}
	}
}

// Namespaces returns those that objects of units were ever in, sorted; "" for objects in none.
func (h Objects) Namespaces(units []*record.Unit) (names []string, err error) {
	it, err := h.db.NewIter(nil)
	if err != nil {
		return nil, h.db.ReadError(err)
	}
	defer it.Close()
	for _, u := range units {
		unit := keys.InUnit(nil, keys.SpaceVersion, u.Number)
		for ok := it.SeekGE(unit); ok && bytes.HasPrefix(it.Key(), unit); {
			_, namespace, _, _, isKey := keys.SplitVersion(it.Key())
			if !isKey {
				return nil, h.db.ReadError(record.ErrUnreadable)
			}
			names = append(names, namespace)
			ok = it.SeekGE(keys.After(keys.AppendName(bytes.Clone(unit), namespace)))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), h.db.ReadError(it.Error())
}

// What the writer has to know of what is stored.

// StoredVersion returns a version of an object, nil when it is not stored.
func StoredVersion(db DB, o *Object, seq keys.Sequence) (*Version, error) {
	r, err := newReader(db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.atSequence(o.Unit, o.Namespace, o.Name, seq)
}

// NewestVersion returns the newest version of an object that is stored, nil for none.
func NewestVersion(db DB, o *Object) (*Version, error) {
	r, err := newReader(db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	prefix := o.prefix()
	if !r.it.SeekLT(keys.After(prefix)) || !bytes.HasPrefix(r.it.Key(), prefix) {
		return nil, r.err()
	}
	return r.version()
}

// LastBefore returns the last version of an object before a time.
func LastBefore(db DB, o *Object, at time.Time) (seq keys.Sequence, found bool, err error) {
	r, err := newReader(db)
	if err != nil {
		return seq, false, err
	}
	defer r.Close()
	return r.lastBefore(o, at)
}

// Rebased returns the version at an iterator, which it moves, stored whole instead of as a
// difference.
func Rebased(it *pebble.Iterator, o *Object, seq keys.Sequence, h record.Header) ([]byte, error) {
	d, err := (&reader{it: it}).decode(seq, h)
	if err != nil {
		return nil, err
	}
	if _, err := versionOf(o.Unit, o.Namespace, o.Name, seq, h, d.text, d.base); err != nil {
		return nil, fmt.Errorf("version %s of %s: %w", seq, o, record.ErrUnreadable)
	}
	return record.AppendRebased(nil, &h, d.base, d.text), nil
}

// Outlasts reports whether notice m makes states from time at on uncertain. It returns true when m
// is a hole that the last list before at has not healed, and m names no object, or an object
// without a later version before at. synced is the end of that list, zero for none.
func Outlasts(db DB, m *Notice, synced, at time.Time) (bool, error) {
	if !m.IsHole() || m.isHealed(synced) {
		return false, nil
	}
	o := m.object()
	if o == nil {
		return true, nil
	}
	seq, found, err := LastBefore(db, o, at)
	if err != nil || !found {
		return true, err
	}
	v, err := StoredVersion(db, o, seq)
	return !m.endsBefore(v), err
}
