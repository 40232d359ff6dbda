package store

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// An announcement records that an Added of an object may have been sent, before anything about the
// object is settled. It is on disk before the event can leave. After a crash nothing else knows of
// the object: if it is gone by then, and the versions in between are lost, only the announcement
// shows that its delete must be sent.
//
// Announcements of this run go when a later state of their object is settled. Those of an earlier
// run stay until this one meets the object again, in the watch that begins at the watermark, or a
// list shows that it is gone.
//
// An inferred delete is announced too, with the version as of which the object is gone: after a
// crash a list would show a later one, and the same event would come again with another content.
// Or the object is listed, since it is selected again: its readers take it for gone.

// Announcements are those of one unit. Its controller makes them and meets their objects; the
// committer drops the ones whose objects are settled.
type Announcements struct {
	ix *Indexer // has the bodies

	mu    sync.RWMutex // guards byKey
	byKey map[resource.Key][]announcement
	left  atomic.Int64 // those of them of an earlier run
}

// Announcement of one object, or of its inferred delete.
type Announcement struct {
	Key    resource.Key
	Object *resource.Object
	// Gone is set in place of Object for an inferred delete.
	Gone *InferredDelete
	// Seq of the change that adds the object, or deletes it.
	Seq uint64
	// Unknown: the object's key has no record at all, not even a tombstone. Its body can be written
	// where the settled one will be, and is not written again.
	Unknown bool
}

// InferredDelete is an inferred delete of an object.
type InferredDelete struct {
	UID string
	// Version is the last one that is known, AsOf the one as of which the object is gone, in the
	// history of Epoch.
	Version, AsOf resource.Version
	Epoch         int
}

// announcement is the part in memory of one that is not settled.
type announcement struct {
	uid string
	// again distinguishes it from an earlier one of the same object, which left the selection and
	// entered again: the earlier one may be settled, and its announcement dropped, while this one
	// is needed.
	again   string
	version resource.Version
	seq     uint64 // 0: of an earlier run, and not met by this one
	kind    announcedKind
	// asOf is set for announcedGone.
	asOf  resource.Version
	epoch int
}

// announcedKind is the first byte of an announcement on disk.
type announcedKind byte

const (
	announcedBody    announcedKind = iota // an object, whose body is in the announcement
	announcedInPlace                      // an object, whose body is where the settled one will be
	announcedGone                         // an inferred delete
	announcedUnread                       // see MarkUnread

	announcedKinds
)

// What again begins with, so that announcements of several kinds of one object have keys of their
// own.
const (
	goneMark   = "gone "
	unreadMark = "unread "
)

// adds reports whether an Added of the object may have been sent.
func (a *announcement) adds() bool { return a.kind <= announcedInPlace }

// Announce makes announcements durable. Those of an earlier run stay valid.
func (as *Announcements) Announce(list []Announcement) error {
	batch := as.ix.db.NewBatch()
	made := make([]announcement, len(list))
	for i := range list {
		switch a := &list[i]; {
		case a.Gone != nil && as.registerGone(a, &made[i]):
			batch.announceGone(as.ix, a.Key, &made[i])
		case a.Gone == nil && as.register(a, &made[i]):
			batch.announce(as.ix, a.Key, &made[i], a.Object.Raw)
		}
	}
	err := batch.Commit()
	if err != nil {
		as.withdraw(list, made)
	}
	return err
}

// register records an announcement before it is written, and reports whether it must be.
func (as *Announcements) register(a *Announcement, made *announcement) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	before := as.byKey[a.Key]
	*made = announcement{
		uid:     strings.Clone(a.Object.UID),
		version: resource.Version(strings.Clone(string(a.Object.Version))),
		seq:     a.Seq,
	}
	if a.Unknown && len(before) == 0 {
		made.kind = announcedInPlace
	}
	if last := newestOf(before, made.uid); last != nil {
		if (last.seq == 0 || last.seq >= a.Seq) && !deletedSince(before, last) {
			*made = announcement{}
			return false
		}
		made.again = string(made.version)
	}
	as.byKey[a.Key] = append(before, *made)
	return true
}

// deletedSince reports whether an inferred delete of an object is among the announcements of its
// key, of the version that was announced last or a later one. What adds it then begins another
// life: the delete that ends that has a version, and an id, of its own.
func deletedSince(list []announcement, last *announcement) bool {
	return slices.ContainsFunc(list, func(a announcement) bool {
		return a.kind == announcedGone && a.uid == last.uid && !last.version.Newer(a.version)
	})
}

// registerGone records an inferred delete before it is written, and reports whether it must be.
func (as *Announcements) registerGone(a *Announcement, made *announcement) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	before := as.byKey[a.Key]
	if i := indexGone(before, a.Gone); i >= 0 && before[i].asOf == a.Gone.AsOf {
		return false // by an earlier run
	}
	version := strings.Clone(string(a.Gone.Version))
	*made = announcement{
		uid: strings.Clone(a.Gone.UID), again: goneMark + version,
		version: resource.Version(version), seq: a.Seq, kind: announcedGone,
		asOf: resource.Version(strings.Clone(string(a.Gone.AsOf))), epoch: a.Gone.Epoch,
	}
	as.byKey[a.Key] = append(before, *made)
	return true
}

// indexGone finds an inferred delete of an object among the announcements of its key, -1 for none.
// It may be of a later version than the one that is known now: that was lost in the crash.
func indexGone(list []announcement, gone *InferredDelete) int {
	return slices.IndexFunc(list, func(a announcement) bool {
		return a.kind == announcedGone && a.uid == gone.UID && a.epoch == gone.Epoch &&
			!gone.Version.Newer(a.version) && !a.asOf.Newer(gone.AsOf)
	})
}

// Owed returns an inferred delete as an earlier run has announced it, if that run died before the
// delete was settled; else the delete itself.
func (as *Announcements) Owed(key resource.Key, gone InferredDelete) InferredDelete {
	list := as.announcedOf(key)
	if i := indexGone(list, &gone); i >= 0 {
		gone.Version, gone.AsOf = list[i].version, list[i].asOf
	}
	return gone
}

// DeleteAnnounced reports whether an earlier run may have sent an inferred delete of an object, and
// this run has not met the object.
func (as *Announcements) DeleteAnnounced(key resource.Key, uid string) bool {
	if as.left.Load() == 0 {
		return false
	}
	return slices.ContainsFunc(as.announcedOf(key), func(a announcement) bool {
		return a.kind == announcedGone && a.uid == uid && a.seq == 0
	})
}

// withdraw forgets announcements that were not written.
func (as *Announcements) withdraw(list []Announcement, made []announcement) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for i, a := range list {
		left := slices.DeleteFunc(as.byKey[a.Key],
			func(b announcement) bool { return made[i].uid == b.uid && made[i].seq == b.seq })
		if as.byKey[a.Key] = left; len(left) == 0 {
			delete(as.byKey, a.Key)
		}
	}
}

// count returns how many objects have announcements.
func (as *Announcements) count() int {
	as.mu.RLock()
	defer as.mu.RUnlock()
	return len(as.byKey)
}

func (as *Announcements) announcedOf(key resource.Key) []announcement {
	as.mu.RLock()
	defer as.mu.RUnlock()
	return slices.Clone(as.byKey[key])
}

// announce writes an announcement: where its body is, its version, and its body unless that is in
// its final place.
func (b *Batch) announce(ix *Indexer, key resource.Key, a *announcement, raw []byte) {
	b.body = ix.db.bodies.encode(b.body, raw)
	value := make([]byte, 0, 2+len(a.version))
	value = append(value, byte(a.kind), byte(len(a.version)))
	value = append(value, a.version...)
	if a.kind == announcedInPlace {
		b.put(objectKey(spaceBody, ix.id, key), b.body)
	} else {
		value = append(value, b.body...)
	}
	b.put(announcementKey(ix.id, key, a), value)
}

// announceGone writes an inferred delete.
func (b *Batch) announceGone(ix *Indexer, key resource.Key, a *announcement) {
	value := binary.AppendUvarint([]byte{byte(a.kind)}, uint64(a.epoch))
	b.put(announcementKey(ix.id, key, a), append(value, a.asOf...))
}

// Meet is called when a change of this run is about an object that an earlier run may have
// announced, up to a version; "" for all versions. A later announcement is of another life of the
// object under a selector, which is still to come.
func (as *Announcements) Meet(key resource.Key, uid string, upTo resource.Version, seq uint64) {
	if as.left.Load() == 0 {
		return
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	for i := range as.byKey[key] {
		if a := &as.byKey[key][i]; a.uid == uid && a.seq == 0 &&
			(upTo == "" || !a.version.Newer(upTo)) {
			a.seq = seq
			as.left.Add(-1)
		}
	}
}

// Left returns the objects that an earlier run has announced under a key and this run has not met,
// the oldest first, each in its last announced state.
func (as *Announcements) Left(key resource.Key) []Record {
	if as.left.Load() == 0 {
		return nil
	}
	var left []Record
	list := as.announcedOf(key)
	for _, a := range list {
		if !a.adds() {
			continue
		}
		if last := newestOf(list, a.uid); a.seq == 0 && last.again == a.again {
			left = append(left, Record{UID: a.uid, Version: a.version})
		}
	}
	slices.SortStableFunc(left, func(a, b Record) int {
		if a.Version.Newer(b.Version) {
			return 1
		}
		return -1
	})
	return left
}

// newestOf returns the last announcement of an object among those of its key.
func newestOf(list []announcement, uid string) *announcement {
	var newest *announcement
	for i := range list {
		if a := &list[i]; a.adds() && a.uid == uid && (newest == nil || a.version.Newer(newest.version)) {
			newest = a
		}
	}
	return newest
}

// LeftObject returns the state in which an object was announced last, nil when that is not known
// any more.
func (as *Announcements) LeftObject(key resource.Key, uid string) (*resource.Object, error) {
	last := newestOf(as.announcedOf(key), uid)
	if last == nil {
		return nil, nil
	}
	value, err := as.ix.db.state.Get(announcementKey(as.ix.id, key, last))
	if err != nil || value == nil {
		return nil, err
	}
	a, body, err := parseAnnouncement(uid, value)
	if err != nil {
		return nil, err
	}
	if a.kind != announcedInPlace {
		return as.ix.parseBody(key, body)
	}
	obj, err := as.ix.settledObject(key)
	if err != nil || obj == nil || obj.UID != uid {
		return nil, err // another state was settled there since
	}
	return obj, nil
}

func parseAnnouncement(uid string, value []byte) (a announcement, body []byte, err error) {
	if len(value) < 2 || announcedKind(value[0]) >= announcedKinds {
		return a, nil, errAnnouncement
	}
	a.uid, a.kind, value = uid, announcedKind(value[0]), value[1:]
	if a.kind == announcedGone {
		epoch, n := binary.Uvarint(value)
		if n <= 0 {
			return a, nil, errAnnouncement
		}
		a.epoch, a.asOf = int(epoch), resource.Version(value[n:])
		return a, nil, nil
	}
	end := 1 + int(value[0])
	if len(value) < end {
		return a, nil, errAnnouncement
	}
	a.version = resource.Version(value[1:end])
	return a, value[end:], nil
}

// load reads the announcements of earlier runs.
func (as *Announcements) load() error {
	it, err := as.ix.iterator(spaceAnnounced)
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		key, uid, again, errKey := splitAnnouncementKey(it.Key()[len(prefix(spaceAnnounced, 0)):])
		a, _, errParse := parseAnnouncement(uid, it.Value())
		if a.again = again; a.kind == announcedGone {
			a.version = resource.Version(strings.TrimPrefix(again, goneMark))
		}
		if err = errors.Join(err, errKey, errParse); err == nil {
			as.byKey[key] = append(as.byKey[key], a)
			as.left.Add(1)
		}
	}
	return errors.Join(err, statedb.Wrap(it.Error()), statedb.Wrap(it.Close()))
}

// missing yields the keys with prefix in under which an earlier run has announced an object
// that a list as of version does not have, except those with a live record.
func (as *Announcements) missing(
	version resource.Version, anyVersion bool, in resource.Key, yield func(resource.Key,
		error) bool,
) bool {
	if as.left.Load() == 0 {
		return true
	}
	as.mu.RLock()
	keys := slices.Sorted(maps.Keys(as.byKey))
	as.mu.RUnlock()
	for _, key := range keys {
		if !strings.HasPrefix(string(key), string(in)) {
			continue
		}
		left := slices.DeleteFunc(as.Left(key), func(r Record) bool {
			return !anyVersion && r.Version.Newer(version)
		})
		if len(left) == 0 {
			continue
		}
		rec, found, err := as.ix.Get(key)
		listed, errListed := as.ix.db.state.Get(objectKey(spaceListed, as.ix.id, key))
		if err = errors.Join(err, errListed); err == nil && (listed != nil || found && !rec.Deleted) {
			continue
		}
		if !yield(key, err) || err != nil {
			return false
		}
	}
	return true
}

// dropAnnounced adds to the commit of an object's state that the announcements up to it are no
// longer needed. It reports whether the state's body is in its place already.
func (b *Batch) dropAnnounced(ix *Indexer, key resource.Key, s *NewState) (bodyInPlace bool) {
	as := &ix.announced
	as.mu.Lock()
	defer as.mu.Unlock()
	list := as.byKey[key]
	for i := range list {
		a := &list[i]
		if a.seq > 0 && a.seq <= s.Seq {
			b.Fail(b.batch.Delete(announcementKey(ix.id, key, a), nil))
			bodyInPlace = bodyInPlace || a.kind == announcedInPlace && a.uid == s.UID &&
				a.version == s.Version
		} else if a.kind == announcedInPlace {
			a.kind = announcedBody // this commit writes there
		}
	}
	return bodyInPlace
}

// forget drops from memory what dropAnnounced has dropped from disk.
func (as *Announcements) forget(settled map[resource.Key]NewState) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for key, s := range settled {
		list, ok := as.byKey[key]
		if !ok {
			continue
		}
		list = slices.DeleteFunc(list, func(a announcement) bool {
			return a.seq > 0 && a.seq <= s.Seq
		})
		if len(list) == 0 {
			delete(as.byKey, key)
		} else {
			as.byKey[key] = list
		}
	}
}
