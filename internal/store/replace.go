package store

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Listing is the list of objects that the controller works through. It belongs to the controller.
//
// Which objects the list held is in the database, so that a relist of a million objects costs no
// memory. It need not survive a crash, since the relist does not either.
type Listing struct {
	ix    *Indexer
	first bool // it began when nothing was known
}

// Begin forgets which objects were listed: a list of everything begins. While nothing is known
// no object is added: whatever is known at the list's end was in it.
func (l *Listing) Begin() error {
	if err := l.Clear(); err != nil {
		return err
	}
	empty, err := l.ix.Empty()
	l.first = empty && err == nil
	return err
}

// Clear forgets which objects were listed: a list of a namespace begins, or a list has ended.
func (l *Listing) Clear() error {
	if l.first {
		l.first = false
		return nil
	}
	begin := prefix(spaceListed, l.ix.id)
	batch := l.ix.db.pebble.NewBatch()
	return l.ix.db.state.Finish(batch, pebble.NoSync, batch.DeleteRange(begin, after(begin), nil))
}

// Add remembers that objects were listed.
func (l *Listing) Add(keys []resource.Key) error {
	if len(keys) == 0 || l.first {
		return nil
	}
	batch := l.ix.db.pebble.NewBatch()
	var errs []error
	for _, key := range keys {
		if err := batch.Set(objectKey(spaceListed, l.ix.id, key), nil, nil); err != nil {
			errs = append(errs, err)
		}
	}
	return l.ix.db.state.Finish(batch, pebble.NoSync, errs...)
}

// Has reports whether an object was listed, which is whether Add got its key.
func (l *Listing) Has(key resource.Key) (bool, error) {
	listed, err := l.ix.db.state.Get(objectKey(spaceListed, l.ix.id, key))
	return listed != nil, err
}

// Missing yields the keys of known objects that the list as of version did not have: those that
// were not added, and are not newer than the list. After a rewind, and when the list's namespace
// has left the selection, versions are not compared. Of a list of one namespace only its own
// objects can be missing; of an incomplete one, none. Objects that an earlier run has announced,
// were not met since, and are not in the list are missing too. It does not see changes that are
// applied while it runs.
func (l *Listing) Missing(
	version resource.Version, why resource.Relist,
) iter.Seq2[resource.Key, error] {
	anyVersion, in := why.Rewound() || why.Leaves(), inNamespace(why.Namespace)
	return func(yield func(resource.Key, error) bool) {
		if why.Incomplete || l.first {
			return
		}
		listed, err := l.ix.iteratorOf(spaceListed, in)
		if err != nil {
			yield("", err)
			return
		}
		defer listed.Close()
		more := listed.First()
		for item, err := range l.ix.all(in) {
			if err != nil {
				yield("", err)
				return
			}
			for more && listedKey(listed) < item.Key {
				more = listed.Next()
			}
			if more && listedKey(listed) == item.Key {
				continue
			}
			if !anyVersion && item.Version.Newer(version) {
				continue // made after the list: the watch brings it
			}
			if !yield(item.Key, nil) {
				return
			}
		}
		if err := listed.Error(); err != nil {
			yield("", fmt.Errorf("state database: %w", err))
			return
		}
		l.ix.announced.missing(version, anyVersion, in, yield)
	}
}

func listedKey(it *pebble.Iterator) resource.Key {
	return resource.Key(it.Key()[len(prefix(spaceListed, 0)):])
}

// Empty reports whether no object was ever known or announced; a deleted one that is not forgotten
// counts as known.
func (ix *Indexer) Empty() (bool, error) {
	// read first: what a commit moves from there to the database is then found in one of them
	ix.mu.RLock()
	onWay := len(ix.overlay)
	ix.mu.RUnlock()
	onWay += ix.announced.count()
	if onWay > 0 {
		return false, nil
	}
	it, err := ix.iterator(spaceRecord)
	if err != nil {
		return false, err
	}
	found := it.First()
	return !found, statedb.Wrap(errors.Join(it.Error(), it.Close()))
}

// MarkUnread records that a version of an object can't be read, until a later state of the object
// is settled. It is an announcement, and goes in the same way. It does not wait for the disk: the
// database's log is in order, so a later commit is not on disk without it. seq is the number of the
// change that reports the version.
func (as *Announcements) MarkUnread(key resource.Key, uid string, seq uint64) error {
	if as.Unread(key) {
		return nil
	}
	// A commit that is being written may drop an earlier mark, so each has a key of its own.
	mark := announcement{
		uid: strings.Clone(uid), kind: announcedUnread,
		again: unreadMark + strconv.FormatUint(seq, 10),
	}
	as.mu.Lock()
	key = resource.Key(strings.Clone(string(key)))
	as.byKey[key] = append(as.byKey[key], mark)
	as.left.Add(1)
	as.mu.Unlock()
	batch := as.ix.db.pebble.NewBatch()
	value := []byte{byte(mark.kind), 0}
	err := batch.Set(announcementKey(as.ix.id, key, &mark), value, nil)
	return as.ix.db.state.Finish(batch, pebble.NoSync, err)
}

// Unread reports whether the version behind the known one of an object could not be read, and no
// later one has come.
func (as *Announcements) Unread(key resource.Key) bool {
	if as.left.Load() == 0 {
		return false
	}
	as.mu.RLock()
	defer as.mu.RUnlock()
	return slices.ContainsFunc(as.byKey[key], func(a announcement) bool {
		return a.kind == announcedUnread && a.seq == 0
	})
}
