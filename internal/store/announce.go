package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

// An announcement records that an Added of an object may have been sent, before anything about the
// object is settled. It is on disk before the event can leave. After a crash nothing else knows of
// the object: if it is gone by then, and the versions in between are lost, only the announcement
// shows that its delete must be sent.
//
// Announcements of this run go when a later state of their object is settled. Those of an earlier
// run stay until this one meets the object again, in the watch that begins at the watermark, or a
// list shows that it is gone.

// Announcement of one object.
type Announcement struct {
	Key    resource.Key
	Object *resource.Object
	// Seq of the change that adds it.
	Seq uint64
	// Unknown: the object's key has no record at all, not even a tombstone. Its body can be written
	// where the settled one will be, and is not written again.
	Unknown bool
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
	inPlace bool   // its body lies where the settled one will
}

// Announce makes announcements durable. Those of an earlier run stay valid.
func (ix *Indexer) Announce(list []Announcement) error {
	batch := ix.db.NewBatch()
	made := make([]announcement, len(list))
	for i := range list {
		if ix.register(&list[i], &made[i]) {
			batch.announce(ix, list[i].Key, &made[i], list[i].Object.Raw)
		}
	}
	err := batch.Commit()
	if err != nil {
		ix.withdraw(list, made)
	}
	return err
}

// register records an announcement before it is written, and reports whether it must be.
func (ix *Indexer) register(a *Announcement, made *announcement) bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	before := ix.announced[a.Key]
	*made = announcement{
		uid:     strings.Clone(a.Object.UID),
		version: resource.Version(strings.Clone(string(a.Object.Version))),
		seq:     a.Seq, inPlace: a.Unknown && len(before) == 0,
	}
	for _, b := range before {
		switch {
		case b.uid != made.uid:
		case b.seq == 0 || b.seq >= a.Seq:
			*made = announcement{}
			return false
		default:
			made.again = string(made.version)
		}
	}
	ix.announced[a.Key] = append(before, *made)
	return true
}

// withdraw forgets announcements that were not written.
func (ix *Indexer) withdraw(list []Announcement, made []announcement) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for i, a := range list {
		left := slices.DeleteFunc(ix.announced[a.Key],
			func(b announcement) bool { return made[i].uid == b.uid && made[i].seq == b.seq })
		if ix.announced[a.Key] = left; len(left) == 0 {
			delete(ix.announced, a.Key)
		}
	}
}

func (ix *Indexer) announcedOf(key resource.Key) []announcement {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return slices.Clone(ix.announced[key])
}

// announce writes one: where its body is, its version, and its body unless that is in its final
// place.
func (b *Batch) announce(ix *Indexer, key resource.Key, a *announcement, raw []byte) {
	b.body = ix.db.bodies.encode(b.body, raw)
	value := make([]byte, 0, 2+len(a.version))
	if a.inPlace {
		b.put(objectKey(spaceBody, ix.id, key), b.body)
		value = append(value, 1)
	} else {
		value = append(value, 0)
	}
	value = append(value, byte(len(a.version)))
	value = append(value, a.version...)
	if !a.inPlace {
		value = append(value, b.body...)
	}
	b.put(announcementKey(ix.id, key, a), value)
}

// Meet is called when a change of this run is about an object that an earlier run may have
// announced: up to a version; "" for all. A later announcement is of another life of the object
// under a selector, which is still to come.
func (ix *Indexer) Meet(key resource.Key, uid string, upTo resource.Version, seq uint64) {
	if ix.left.Load() == 0 {
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for i := range ix.announced[key] {
		if a := &ix.announced[key][i]; a.uid == uid && a.seq == 0 &&
			(upTo == "" || !a.version.Newer(upTo)) {
			a.seq = seq
			ix.left.Add(-1)
		}
	}
}

// Left returns the objects that an earlier run has announced under a key and this run has not met,
// the oldest first, each in its last announced state.
func (ix *Indexer) Left(key resource.Key) []Record {
	if ix.left.Load() == 0 {
		return nil
	}
	var left []Record
	list := ix.announcedOf(key)
	for _, a := range list {
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
		if a := &list[i]; a.uid == uid && (newest == nil || a.version.Newer(newest.version)) {
			newest = a
		}
	}
	return newest
}

// LeftObject returns the state in which an object was announced last, nil when that is not known
// any more.
func (ix *Indexer) LeftObject(key resource.Key, uid string) (*resource.Object, error) {
	last := newestOf(ix.announcedOf(key), uid)
	if last == nil {
		return nil, nil
	}
	value, err := ix.db.get(announcementKey(ix.id, key, last))
	if err != nil || value == nil {
		return nil, err
	}
	a, body, err := parseAnnouncement(uid, value)
	if err != nil {
		return nil, err
	}
	if !a.inPlace {
		return ix.parseBody(key, body)
	}
	obj, err := ix.settledObject(key)
	if err != nil || obj == nil || obj.UID != uid {
		return nil, err // another state was settled there since
	}
	return obj, nil
}

func parseAnnouncement(uid string, value []byte) (a announcement, body []byte, err error) {
	if len(value) < 2 || value[0] > 1 || len(value) < 2+int(value[1]) {
		return a, nil, fmt.Errorf("state database: an announcement of %d bytes does not parse; "+
			"the directory is damaged: restore it from a copy, or reset the informer", len(value))
	}
	end := 2 + int(value[1])
	return announcement{
		uid: uid, version: resource.Version(value[2:end]),
		inPlace: value[0] == 1,
	}, value[end:], nil
}

// loadAnnounced reads the announcements of earlier runs.
func (ix *Indexer) loadAnnounced() error {
	it, err := ix.iterator(spaceAnnounced)
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		tail := string(it.Key()[len(prefix(spaceAnnounced, 0)):])
		key, uid, _ := strings.Cut(tail, announcedSeparator)
		uid, again, _ := strings.Cut(uid, announcedSeparator)
		a, _, errParse := parseAnnouncement(uid, it.Value())
		a.again = again
		if err = errors.Join(err, errParse); err == nil {
			ix.announced[resource.Key(key)] = append(ix.announced[resource.Key(key)], a)
			ix.left.Add(1)
		}
	}
	return errors.Join(err, wrap(it.Error()), wrap(it.Close()))
}

// leftMissing yields the keys with prefix in under which an earlier run has announced an object
// that a list as of version does not have, except those with a live record.
func (ix *Indexer) leftMissing(
	version resource.Version, anyVersion bool, in resource.Key, yield func(resource.Key,
		error) bool,
) bool {
	if ix.left.Load() == 0 {
		return true
	}
	ix.mu.RLock()
	keys := slices.Sorted(maps.Keys(ix.announced))
	ix.mu.RUnlock()
	for _, key := range keys {
		if !strings.HasPrefix(string(key), string(in)) {
			continue
		}
		left := slices.DeleteFunc(ix.Left(key), func(r Record) bool {
			return !anyVersion &&
				r.Version.Newer(version)
		})
		if len(left) == 0 {
			continue
		}
		rec, found, err := ix.Get(key)
		marked, errMark := ix.db.get(objectKey(spaceMark, ix.id, key))
		if err = errors.Join(err, errMark); err == nil && (marked != nil || found && !rec.Deleted) {
			continue
		}
		if !yield(key, err) || err != nil {
			return false
		}
	}
	return true
}

// dropAnnounced adds to the commit of an object's state that announcements up to it are no longer
// needed. It reports whether the state's body is in its place already.
func (b *Batch) dropAnnounced(ix *Indexer, key resource.Key, s *Settled) (bodyInPlace bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	list := ix.announced[key]
	for i := range list {
		a := &list[i]
		if a.seq > 0 && a.seq <= s.Seq {
			b.fail(b.batch.Delete(announcementKey(ix.id, key, a), nil))
			bodyInPlace = bodyInPlace || a.inPlace && a.uid == s.UID && a.version == s.Version
		} else {
			a.inPlace = false // this commit writes there
		}
	}
	return bodyInPlace
}

// forgetAnnouncedLocked drops from memory what dropAnnounced has dropped from disk.
func (ix *Indexer) forgetAnnouncedLocked(key resource.Key, seq uint64) {
	list, ok := ix.announced[key]
	if !ok {
		return
	}
	list = slices.DeleteFunc(list, func(a announcement) bool { return a.seq > 0 && a.seq <= seq })
	if len(list) == 0 {
		delete(ix.announced, key)
	} else {
		ix.announced[key] = list
	}
}
