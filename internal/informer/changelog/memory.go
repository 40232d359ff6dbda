package changelog

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// memory is the newest part of the log.
type memory struct {
	// entries are in order of their positions. Those that all have acked (size 0) go when they are
	// at the front, or when they are most of it: one that is not acked must not keep all later
	// ones.
	entries []*Entry
	base    Position // from which on everything that is not acked is in memory
	next    Position // of the next entry
	bytes   int
	count   int // of entries that are not acked
}

// changedLocked informs whoever looks at what is in memory.
func (l *Log) changedLocked() {
	l.cfg.Account.Set(l.memory.bytes)
	l.metrics.bytes.Set(float64(l.memory.bytes))
	l.metrics.entries.Set(float64(l.memory.count))
	l.cond.Broadcast()
}

// lookAgain is how long waitRoom waits at most.
const lookAgain = time.Second

// waitRoom waits until there is room in memory, or enough reports that something else is to be
// done. It waits only for a moment, since nothing signals that space was freed on disk, or that
// other logs hold less of the shared budget. When memory holds only what is spooled, the Spooler
// does not look after the log either.
func (l *Log) waitRoom(ctx context.Context, enough func() bool) {
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = ratelimit.WaitCond(ctx, l.cond, func() bool { // the caller looks again
		return !l.fullLocked() || enough()
	})
}

// full reports whether there is no room in memory.
func (l *Log) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fullLocked()
}

func (l *Log) fullLocked() bool { return l.memory.bytes >= l.boundLocked() }

// boundLocked is how much the log may hold in memory now.
func (l *Log) boundLocked() int { return l.cfg.Account.Bound(l.cfg.MemoryBytes) }

// find gives the entry at a position, nil when it is not in memory, or acked by all.
func (m *memory) find(at Position) *Entry {
	if n := m.index(at); n < len(m.entries) && m.entries[n].Position == at && m.entries[n].size > 0 {
		return m.entries[n]
	}
	return nil
}

// index is the place of the first entry at or after a position.
func (m *memory) index(from Position) int {
	n, _ := slices.BinarySearchFunc(m.entries, from, func(e *Entry, at Position) int {
		return cmp.Compare(e.Position, at)
	})
	return n
}

// release takes an entry that all have acked out of the log.
func (m *memory) release(e *Entry) {
	m.leave(e)
	// No listener reads it any more. Until the entry is dropped, it must not keep the object alive:
	// its strings share the object's memory.
	e.Change, e.DeltaVersion = event.Change{}, ""
}

// leave takes an entry out of the account.
func (m *memory) leave(e *Entry) {
	m.bytes -= e.size
	m.count--
	e.size = 0
}

// trim drops entries that all have acked.
func (m *memory) trim() {
	if m.count == 0 {
		clear(m.entries)
		m.entries = m.entries[:0]
		return
	}
	front := 0
	for m.entries[front].size == 0 {
		m.entries[front] = nil
		front++
	}
	m.entries = m.entries[front:]
	if len(m.entries) > 1024 && m.count < len(m.entries)/2 {
		m.entries = slices.DeleteFunc(m.entries, func(e *Entry) bool { return e.size == 0 })
	}
}

// leaveFront takes entries out of memory from its front, as long as they lie on disk and while says
// so. Listeners that have not read them will read them from disk.
func (m *memory) leaveFront(while func(e *Entry) bool) {
	n := 0
	for ; n < len(m.entries) && while(m.entries[n]); n++ {
		e := m.entries[n]
		if e.size > 0 && !e.spooled {
			break
		}
		if e.size > 0 {
			m.leave(e)
		}
		m.base = e.Position + 1
		m.entries[n] = nil
	}
	m.entries = m.entries[n:]
}

// unspooled gives the first entry that is neither settled nor on disk, nil for none.
func (m *memory) unspooled() *Entry {
	for _, e := range m.entries {
		if e.size > 0 && !e.spooled {
			return e
		}
	}
	return nil
}
