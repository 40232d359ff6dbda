package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// ErrEnd is returned by Cursor.Read when the log was closed and the cursor is behind its last
// entry.
var ErrEnd = errors.New("end of the change log")

// errMissing returns the error about an entry that a cursor needs and that exists nowhere.
func errMissing(at Position) error {
	return fmt.Errorf("entry %d is neither in memory nor on disk", at)
}

// Cursor is the position of a listener in the log. The listener has read everything before next,
// and has acked it except for pending. Only one goroutine at a time may call Read, TryRead, Park
// and Claim; all other methods may be called concurrently.
type Cursor struct {
	log  *Log
	name string
	bit  Listeners
	spot *ratelimit.Spot // where the listener parks

	// Guarded by Log.mu.
	next    Position
	pending pendingEntries
	// tried are positions whose events the sink may have: their call of the sink had no answer.
	tried        []Position
	dropped      droppedEntries
	savedDropped bool // on disk is something that was lost
	droppedCount int  // entries of this run

	saved []byte // on disk, nil when not known; owned by the committer
}

// Unacked reads the entries that an earlier run has read and not acked. Call it before Read.
func (c *Cursor) Unacked() ([]*Entry, error) {
	l := c.log
	l.mu.Lock()
	positions := c.pending.positions()
	l.mu.Unlock()
	var left []*Entry
	for _, at := range positions {
		e, err := c.load(at)
		if err != nil {
			return nil, err
		}
		if e != nil {
			left = append(left, e)
		}
	}
	var kept pendingEntries
	for _, e := range left {
		kept.add(e.Position, e.Observed)
	}
	c.keep(&kept)
	return left, nil
}

// UnackedHeaders is Unacked for a listener that reads ahead.
func (c *Cursor) UnackedHeaders() ([]Header, error) {
	l := c.log
	l.mu.Lock()
	positions, tried := c.pending.positions(), slices.Clone(c.tried)
	l.mu.Unlock()
	var left []Header
	for _, at := range positions {
		found, err := c.headersAt(at)
		if err != nil {
			return nil, fmt.Errorf("the backlog of sink %s: %w", c.name, err)
		}
		for i := range found {
			_, found[i].Tried = slices.BinarySearch(tried, at)
		}
		left = append(left, found...)
	}
	var kept pendingEntries
	for i := range left {
		kept.add(left[i].Position, left[i].Observed)
	}
	c.keep(&kept)
	return left, nil
}

// keep replaces the pending entries by kept. The others are gone, or were for listeners that do not
// exist any more.
func (c *Cursor) keep(kept *pendingEntries) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.pending = *kept
}

// Read returns up to n entries, in order, and makes them pending. It returns none where there are
// none yet: call Park next. It returns ErrEnd when none will come.
func (c *Cursor) Read(n int) ([]*Entry, error) {
	for {
		found, none, err := c.read(n, true)
		if none || err != nil || len(found) > 0 {
			return found, err
		}
	}
}

// Park lets the goroutine that appends entries run step, which may use TryRead, until step returns
// false. Then resume runs on a new goroutine. Park reports false, and does nothing, where an entry
// may have come since the last Read.
func (c *Cursor) Park(step func() bool, resume func()) bool { return c.spot.Park(step, resume) }

// Unpark runs the step of a parked listener once more.
func (c *Cursor) Unpark() { c.spot.Offer() }

// Offer runs the steps of the listeners that have parked, on this goroutine.
func (l *Log) Offer() {
	for _, c := range l.cursors {
		c.spot.Offer()
	}
}

// TryRead is Read for a step. It returns no entries where it would have to wait, and then reports
// in none whether there are no more.
func (c *Cursor) TryRead(n int) (found []*Entry, none bool) {
	found, none, err := c.read(n, false)
	return found, none && err == nil
}

// read reads once, from disk only with disk. none is set when there is no entry yet, and one will
// come.
func (c *Cursor) read(n int, disk bool) (found []*Entry, none bool, err error) {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.memory
	kept := c.dropped.from(c.next)
	switch {
	case c.next < l.drop.before:
		return nil, true, nil
	case len(kept) > 0: // one alone: what a drop adds to the next it may still add
		c.next = kept[0].Position + 1
		c.pending.add(kept[0].Position, kept[0].Observed)
		return []*Entry{kept[0]}, false, nil
	case c.next < m.base && disk:
		found, err = c.readDiskLocked(n)
		return found, false, err
	case c.next < m.base:
		return nil, false, nil
	}
	for _, e := range m.entries[m.index(c.next):] {
		if len(found) == n {
			return found, false, nil
		}
		c.next = e.Position + 1
		if e.size > 0 && e.For&c.bit != 0 {
			found = append(found, e)
			c.pending.add(e.Position, e.Observed)
		}
	}
	c.next = m.next
	switch {
	case len(found) > 0:
		return found, false, nil
	case l.closed:
		return nil, false, ErrEnd
	}
	return nil, true, nil
}

// readDiskLocked reads entries that lie before memory. It releases the lock while it reads. Where a
// drop has begun meanwhile it returns nothing: the drop may have counted the entries as lost.
func (c *Cursor) readDiskLocked(n int) ([]*Entry, error) {
	l := c.log
	from, base, drops := c.next, l.memory.base, l.drop.count
	l.mu.Unlock()
	found, next, err := l.readDisk(from, base, c.bit, n)
	l.mu.Lock()
	if err != nil || l.drop.count != drops {
		return nil, err
	}
	for _, e := range found {
		c.pending.add(e.Position, e.Observed)
	}
	c.next = next
	return found, nil
}

// Headers describes some of the entries that can be read, without waiting, and returns the position
// behind the last one that it has examined. It claims nothing. While the oldest are dropped it may
// return nothing, and the cursor's own position: those entries are being counted as lost.
func (c *Cursor) Headers() (found []Header, next Position, err error) {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.memory
	if c.next < l.drop.before {
		return nil, c.next, nil
	}
	if kept := c.dropped.from(c.next); len(kept) > 0 {
		return []Header{kept[0].Header()}, kept[0].Position + 1, nil
	}
	if from, base, drops := c.next, m.base, l.drop.count; from < base {
		l.mu.Unlock()
		found, next, err = l.diskHeaders(from, base, c.bit)
		l.mu.Lock()
		if l.drop.count != drops {
			return nil, c.next, err
		}
		return found, next, err
	}
	for _, e := range m.entries[m.index(c.next):] {
		if len(found) == headersAtOnce {
			return found, e.Position, nil
		}
		if e.size > 0 && e.For&c.bit != 0 {
			found = append(found, e.Header())
		}
	}
	return found, m.next, nil
}

// Claim moves the cursor to next, as if everything before it was read, and makes found pending.
func (c *Cursor) Claim(found []Header, next Position) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	for i := range found {
		c.pending.add(found[i].Position, found[i].Observed)
	}
	c.next = max(c.next, next)
}

// Load returns the entry at a position, which is for this listener and not acked by it.
func (c *Cursor) Load(at Position) (*Entry, error) {
	l := c.log
	l.mu.Lock()
	e := l.memory.find(at)
	l.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := c.load(at)
	if err == nil && e == nil {
		err = errMissing(at)
	}
	return e, err
}

// load is Load for an entry that is not in memory; nil where it exists nowhere.
func (c *Cursor) load(at Position) (*Entry, error) {
	if e := c.keptAt(at); e != nil {
		return e, nil
	}
	found, _, err := c.log.readDisk(at, at+1, c.bit, 1)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// headersAt describes the entry that load returns.
func (c *Cursor) headersAt(at Position) ([]Header, error) {
	if e := c.keptAt(at); e != nil {
		return []Header{e.Header()}, nil
	}
	found, _, err := c.log.diskHeaders(at, at+1, c.bit)
	return found, err
}

// keptAt returns the entry at a position that was kept when it was dropped, nil for none.
func (c *Cursor) keptAt(at Position) *Entry {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.dropped.find(at)
}

// Next returns the position to read from, and the one behind the last entry. closed is set when no
// more entries will come.
func (c *Cursor) Next() (next, end Position, closed bool) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.next, c.log.memory.next, c.log.closed
}

// Wait waits until enough returns true; with more also until there is an entry to read, or none
// will come. Wake makes it check again.
func (c *Cursor) Wait(ctx context.Context, more bool, enough func() bool) error {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	return ratelimit.WaitCond(ctx, l.cond, func() bool {
		return enough() || more && (l.memory.next > c.next || l.closed)
	})
}

// Wake makes Wait check again.
func (c *Cursor) Wake() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.cond.Broadcast()
}

// Ack says that a listener is done with an entry.
type Ack struct {
	At Position
	// Hold is released when no restart can make the listener read the entry again; nil for none.
	Hold Hold
}

// Ack records that the listener is done with some pending entries. An entry that all listeners have
// acked is settled, and leaves the log.
func (c *Cursor) Ack(acks []Ack) {
	l := c.log
	var released []Hold
	l.mu.Lock()
	before := l.states.Ready()
	for i := range acks {
		a := &acks[i]
		if !c.pending.remove(a.At) {
			panic(fmt.Sprintf("changelog: entry %d was acked twice, or never read", a.At))
		}
		e := l.memory.find(a.At)
		if e == nil { // it lies on disk, and the cursor has the ack
			released = append(released, a.Hold)
			continue
		}
		switch e.waiting--; {
		case e.waiting == 0:
			if !e.spooled { // else it was settled when it went to disk
				l.settleLocked(e)
			}
			released = append(append(released, e.holds...), a.Hold)
			e.holds = nil
			l.memory.release(e)
		case e.spooled:
			released = append(released, a.Hold)
		case a.Hold != nil:
			e.holds = append(e.holds, a.Hold)
		}
	}
	if !c.dropped.isEmpty() {
		c.dropped.settle(c.next, &c.pending)
	}
	l.memory.trim()
	l.changedLocked()
	l.unlockAndWake(before)
	release(released)
	l.cfg.Committer.Changed()
}

// Tried records that the sink may have the events of some pending entries: their call had no
// answer.
func (c *Cursor) Tried(at []Position) {
	c.log.mu.Lock()
	c.tried = append(c.tried, at...)
	slices.Sort(c.tried)
	c.tried = slices.Compact(c.tried) // some were tried before too
	c.log.mu.Unlock()
	c.log.cfg.Committer.Changed()
}

// KeepTried is Tried for one entry, and returns when that is durable.
func (c *Cursor) KeepTried(at Position) error {
	c.Tried([]Position{at})
	return c.log.cfg.Committer.Commit()
}

// IsTried reports whether the sink may have the event of an entry.
func (c *Cursor) IsTried(at Position) bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	_, isTried := slices.BinarySearch(c.tried, at)
	return isTried
}

// Dropped returns how many entries this run has dropped before the listener acked them.
func (c *Cursor) Dropped() int {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.droppedCount
}

// Oldest returns when the first pending entry was observed; zero for none.
func (c *Cursor) Oldest() time.Time {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	_, observed, _ := c.pending.low()
	return observed
}

// Backlog returns how many entries the listener has not acked, at most: where it has not read all,
// some of them may be for other listeners.
func (c *Cursor) Backlog() int {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.pending.len() + int(c.log.memory.next-c.next)
}

// lowLocked returns the first position that is not acked.
func (c *Cursor) lowLocked() Position {
	if at, _, ok := c.pending.low(); ok {
		return at
	}
	return c.next
}

// stateLocked returns a copy of the cursor's state.
func (c *Cursor) stateLocked() cursorState {
	s := cursorState{next: c.next, pending: c.pending.positions(), dropped: c.dropped}
	s.dropped.kept = slices.Clone(c.dropped.kept)
	for _, at := range c.tried {
		if s.has(at) {
			s.tried = append(s.tried, at)
		}
	}
	return s
}
