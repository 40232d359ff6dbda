package changelog

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// States knows which state of each object is to be committed: that of the last entry in the settled
// prefix of the object's entries (L4). Entries of one object may be settled in any order, since
// some are for some listeners only. Were a later state committed while an earlier entry is not
// settled, a replay after a crash would take that entry for covered, and it would be lost. The
// watermark needs no such care: the earlier entry holds it.
type States struct {
	open  map[resource.Key]*entryChain
	free  *entryChain // that are not used, linked by next
	ready map[resource.Key]store.NewState
	spare map[resource.Key]store.NewState // empty, for after the next Drain; nil for none
}

// entryChain is the entries of an object from the first that is not settled, in order. Of those that are
// settled one behind the other only the last is there.
type entryChain struct {
	queue[chainEntry]
	next *entryChain
}

type chainEntry struct {
	at    Rank
	state *store.NewState // nil while the entry is not settled
}

// maxSpare is how many states there may have been in a map that is used again: one that has grown
// does not shrink.
const maxSpare = 4096

// NewStates has no entries and nothing to commit.
func NewStates() *States {
	return &States{open: map[resource.Key]*entryChain{}, ready: map[resource.Key]store.NewState{}}
}

// Append takes the next entry of an object, which will leave a state.
func (s *States) Append(key resource.Key, at Rank) {
	c := s.open[key]
	if c == nil {
		if c = s.free; c == nil {
			c = &entryChain{}
		} else {
			s.free, c.next = c.next, nil
		}
		s.open[key] = c
	}
	c.push(chainEntry{at: at})
}

// Settle notes that an entry is settled, and the state that it leaves.
func (s *States) Settle(key resource.Key, at Rank, state store.NewState) {
	c := s.open[key]
	i, _ := slices.BinarySearchFunc(c.live(), at, func(l chainEntry, at Rank) int {
		return cmp.Compare(l.at, at)
	})
	if i > 0 {
		c.settle(i, state)
		return
	}
	n := 1
	if c.len() > 1 && c.at(1).state != nil {
		state, n = *c.at(1).state, 2
	}
	s.ready[key] = state
	if c.drop(n); c.len() == 0 {
		delete(s.open, key)
		s.free, c.next = c, s.free
	}
}

// settle notes that an entry behind others is settled.
func (c *entryChain) settle(i int, state store.NewState) {
	if i+1 < c.len() && c.at(i+1).state != nil {
		c.remove(i)
	} else {
		c.at(i).state = &state
	}
	if c.at(i-1).state != nil {
		c.remove(i - 1)
	}
}

// Ready is how many states are to be committed.
func (s *States) Ready() int { return len(s.ready) }

// Drain hands out what is to be committed. Committed or PutBack follows.
func (s *States) Drain() map[resource.Key]store.NewState {
	if len(s.ready) == 0 { // else the commit and what is settled meanwhile would share the map
		return nil
	}
	taken := s.ready
	if s.ready, s.spare = s.spare, nil; s.ready == nil {
		s.ready = make(map[resource.Key]store.NewState, min(len(taken), maxSpare))
	}
	return taken
}

// Committed takes back the map of what is durable, to use it again.
func (s *States) Committed(taken map[resource.Key]store.NewState) {
	if n := len(taken); n > 0 && n <= maxSpare {
		clear(taken)
		s.spare = taken
	}
}

// PutBack takes back what a failed commit did not write. What was settled since is later.
func (s *States) PutBack(taken map[resource.Key]store.NewState) {
	for key, state := range taken {
		if _, isLater := s.ready[key]; !isLater {
			s.ready[key] = state
		}
	}
}

// settleLocked settles an entry, and has its state committed.
func (l *Log) settleLocked(e *Entry) {
	if key := e.stateKey(); key != "" {
		l.states.Settle(key, e.rank, e.State())
	}
	l.marks.Settle(e.rank)
}

// manyStates is how many states to be committed have a commit come early.
const manyStates = 1000

// unlockAndWake ends what may have settled entries. before is how many states were ready before it.
func (l *Log) unlockAndWake(before int) {
	after := l.states.Ready()
	l.mu.Unlock()
	if before < manyStates && after >= manyStates {
		l.cfg.Committer.Wake()
	}
}

// release releases holds, after what they are about is settled or is pending no more: a position of
// a sink that is saved behind them must not come with a cursor that has it pending.
func release(holds []Hold) {
	for _, h := range holds {
		if h != nil {
			h.Release()
		}
	}
}

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
