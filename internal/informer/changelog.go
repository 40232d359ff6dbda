package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/event"
)

// errLogEnd is returned by read when the log was closed and the cursor is behind its last change.
var errLogEnd = errors.New("end of the change log")

// changeLog is the changes of one informer that are not settled by all, in order. Each listener reads it from its own cursor. The
// newest part is in memory; what is before base lies on disk, if it is not settled.
type changeLog struct {
	max     int // bytes in memory
	metrics *metrics
	disk    *diskLog

	mu   sync.Mutex
	cond *sync.Cond // signalled when any field below changes in a way somebody waits for
	// entries are in order of their positions. Those that are settled by all (size 0) go when they are at the front, or
	// when they are most of it: one change that does not settle must not keep all later ones.
	entries []*change
	base    uint64 // position from which on everything that is not settled is in memory
	next    uint64 // position of the next change
	bytes   int
	count   int // entries that are not settled
	closed  bool
}

func newChangeLog(max int, m *metrics, disk *diskLog) *changeLog {
	l := &changeLog{max: max, metrics: m, disk: disk, base: disk.next, next: disk.next}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// full says whether there is no room in memory.
func (l *changeLog) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes >= l.max
}

// waitRoom waits until there is room in memory, or enough says that something else is to be done. wake makes it look again.
func (l *changeLog) waitRoom(ctx context.Context, enough func() bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return condition.Wait(ctx, l.cond, func() bool { return l.bytes < l.max || enough() })
}

// wake makes those who wait look again.
func (l *changeLog) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cond.Broadcast()
}

// append puts changes at the end. The caller has seen to it that there is room; a batch may pass the bound by its own size, which is what
// the FIFO held at most.
func (l *changeLog) append(changes []*change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		c.position = l.next
		l.next++
		l.entries = append(l.entries, c)
		l.bytes += c.size
		l.count++
	}
	l.changedLocked()
}

// changedLocked tells whoever looks at what is in memory.
func (l *changeLog) changedLocked() {
	l.metrics.logBytes.Set(float64(l.bytes))
	l.metrics.logChanges.Set(float64(l.count))
	l.cond.Broadcast()
}

// reader is who reads the log. It is told what it will get, and the position behind the last that was looked at, before it can be dropped.
type reader interface {
	moved(changes []*change, next uint64)
}

// read waits for changes at or after the position and returns up to cap(buf) of them that are for an audience; r is told before. It returns
// errLogEnd when none will come.
func (l *changeLog) read(ctx context.Context, from, audience uint64, buf []*change, r reader) ([]*change, error) {
	for {
		var changes []*change
		var err error
		if base := l.memoryFrom(); from < base {
			changes, from, err = l.disk.readFor(ctx, from, base, audience, cap(buf), r)
		} else {
			changes, from, err = l.readMemory(ctx, from, audience, buf, r)
		}
		if err != nil || len(changes) > 0 {
			return changes, err
		}
	}
}

// end is the position behind the last change, and whether none will come.
func (l *changeLog) end() (next uint64, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.closed
}

// wait waits until enough says so of the position behind the last change, and of whether none will come. wake makes it look again.
func (l *changeLog) wait(ctx context.Context, enough func(next uint64, closed bool) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return condition.Wait(ctx, l.cond, func() bool { return enough(l.next, l.closed) })
}

// sight tells of some changes at and after a position that are for an audience, without waiting, and of the position behind the last that it
// looked at.
func (l *changeLog) sight(from, audience uint64) ([]sighting, uint64, error) {
	if base := l.memoryFrom(); from < base {
		return l.disk.sight(from, base, audience)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.base {
		return nil, from, nil // it has just gone to disk
	}
	found := make([]sighting, 0, readSize)
	for _, c := range l.entries[l.indexLocked(from):] {
		if len(found) == cap(found) {
			return found, c.position, nil
		}
		if c.size > 0 && c.audience&audience != 0 {
			found = append(found, sighting{position: c.position, kind: c.Kind, key: c.Key, op: c.Op, uid: c.UID, observed: c.Observed})
		}
	}
	return found, l.next, nil
}

// at gives the change at a position, which is for an audience that has not settled it.
func (l *changeLog) at(position, audience uint64) (*change, error) {
	if found := l.inMemory([]uint64{position}); len(found) > 0 {
		return found[0], nil
	}
	found, err := l.disk.at([]uint64{position}, audience)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("change %d is neither in memory nor on disk", position)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// inMemory gives the changes at positions, as far as they are in memory and not settled by all.
func (l *changeLog) inMemory(positions []uint64) []*change {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*change
	for _, p := range positions {
		if n := l.indexLocked(p); n < len(l.entries) && l.entries[n].position == p && l.entries[n].size > 0 {
			found = append(found, l.entries[n])
		}
	}
	return found
}

// indexLocked is the place of the first entry at or after a position.
func (l *changeLog) indexLocked(from uint64) int {
	n, _ := slices.BinarySearchFunc(l.entries, from, func(c *change, at uint64) int { return cmp.Compare(c.position, at) })
	return n
}

// memoryFrom is the position from which on everything is in memory.
func (l *changeLog) memoryFrom() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base
}

// readMemory is read for what is in memory. It returns with nothing when what it waited for was moved to disk.
func (l *changeLog) readMemory(ctx context.Context, from, audience uint64, buf []*change, r reader) ([]*change, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if from < l.base {
			return nil, from, nil
		}
		buf = buf[:0]
		for _, c := range l.entries[l.indexLocked(from):] {
			if len(buf) == cap(buf) {
				break
			}
			from = c.position + 1
			if c.size > 0 && c.audience&audience != 0 {
				buf = append(buf, c)
			}
		}
		if len(buf) > 0 {
			r.moved(buf, from)
			return buf, from, nil
		}
		from = l.next
		if l.closed {
			return nil, from, errLogEnd
		}
		if err := condition.Wait(ctx, l.cond, func() bool { return l.closed || l.next > from }); err != nil {
			return nil, from, err
		}
	}
}

// release takes changes that are settled by all out of the log.
func (l *changeLog) release(changes []*change) {
	if len(changes) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if c.size > 0 { // else it has left memory already
			l.dropLocked(c)
			// All have settled it, so nobody reads it: don't keep the object while the change waits to be dropped, nor its
			// strings, which share the object's memory.
			c.Change, c.Told = event.Change{}, ""
		}
	}
	l.trimLocked()
	l.changedLocked()
}

// dropLocked takes a change out of the account.
func (l *changeLog) dropLocked(c *change) {
	l.bytes -= c.size
	l.count--
	c.size = 0
}

// unspooled are the changes in memory that are not settled, not on disk, and were observed by a time, as they are now. That time
// itself counts: who spools everything passes the present, and a clock may show the same time twice.
func (l *changeLog) unspooled(by time.Time) []pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []pending
	for _, c := range l.entries {
		if c.size > 0 && !c.spooled.Load() && !c.Observed.After(by) {
			list = append(list, pending{change: c, facts: c.facts})
		}
	}
	return list
}

// pending is a change on its way to disk, and what it said when it was looked at.
type pending struct {
	change *change
	facts  facts
}

// oldest is when the first change that is neither settled nor on disk was observed; zero when there is none.
func (l *changeLog) oldest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.entries {
		if c.size > 0 && !c.spooled.Load() {
			return c.Observed
		}
	}
	return time.Time{}
}

// giveWay drops changes that lie on disk from the front of memory, until half of it is free. Listeners that have not read them will read
// them from disk.
func (l *changeLog) giveWay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for ; n < len(l.entries) && l.bytes > l.max/2; n++ {
		c := l.entries[n]
		if c.size > 0 && !c.spooled.Load() {
			break
		}
		if c.size > 0 {
			l.dropLocked(c)
		}
		l.base = c.position + 1
		l.entries[n] = nil
	}
	l.entries = l.entries[n:]
	l.changedLocked()
}

// forget drops changes before a position from memory. They lie on disk, all of them: what is there is older than what is not.
func (l *changeLog) forget(before uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for ; n < len(l.entries) && l.entries[n].position < before; n++ {
		if c := l.entries[n]; c.size > 0 {
			l.dropLocked(c)
		}
		l.entries[n] = nil
	}
	l.entries = l.entries[n:]
	l.base = max(l.base, before)
	l.changedLocked()
}

// trimLocked drops settled entries.
func (l *changeLog) trimLocked() {
	if l.count == 0 {
		clear(l.entries)
		l.entries = l.entries[:0]
		return
	}
	front := 0
	for l.entries[front].size == 0 {
		l.entries[front] = nil
		front++
	}
	l.entries = l.entries[front:]
	if len(l.entries) > 1024 && l.count < len(l.entries)/2 {
		l.entries = slices.DeleteFunc(l.entries, func(c *change) bool { return c.size == 0 })
	}
}

// close says that no change will be appended.
func (l *changeLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.cond.Broadcast()
}

// stats says what waits.
func (l *changeLog) stats() (changes, bytes, max int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.bytes, l.max
}
