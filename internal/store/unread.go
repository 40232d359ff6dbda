package store

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

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
