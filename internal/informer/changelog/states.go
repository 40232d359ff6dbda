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

// States finds the state of each object to be committed: that of the last entry in the settled
// prefix of the object's entries (L4). Entries of one object may be settled in any order, since
// some are for some listeners only. Suppose a later state were committed while an earlier entry is
// not settled: after a crash, a replay would take the earlier entry for covered, and it would be
// lost. The watermark needs no such care: the earlier entry holds it back.
type States struct {
	open  map[resource.Key]*entryChain
	free  *entryChain // that are not used, linked by next
	ready map[resource.Key]store.NewState
	spare map[resource.Key]store.NewState // empty, for after the next Drain; nil for none
}

// entryChain is the entries of an object from the first unsettled one on, in order. Of settled
// entries in a row only the last is kept.
type entryChain struct {
	queue[chainEntry]
	next *entryChain
}

type chainEntry struct {
	at    Rank
	state *store.NewState // nil while the entry is not settled
}

// maxSpare bounds the states of a map that is used again: a map that has grown does not shrink.
const maxSpare = 4096

// NewStates makes States without entries.
func NewStates() *States {
	return &States{open: map[resource.Key]*entryChain{}, ready: map[resource.Key]store.NewState{}}
}

// Append adds the next entry of an object, which will leave a state.
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

// Settle settles an entry, which leaves state.
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

// settle settles an entry that has others before it.
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

// Ready returns how many states are to be committed.
func (s *States) Ready() int { return len(s.ready) }

// Drain returns the states to be committed. Committed or PutBack follows.
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

// Committed takes back the map of durable states, to use it again.
func (s *States) Committed(taken map[resource.Key]store.NewState) {
	if n := len(taken); n > 0 && n <= maxSpare {
		clear(taken)
		s.spare = taken
	}
}

// PutBack takes back the states that a failed commit did not write. States settled since are later.
func (s *States) PutBack(taken map[resource.Key]store.NewState) {
	for key, state := range taken {
		if _, isLater := s.ready[key]; !isLater {
			s.ready[key] = state
		}
	}
}

// settleLocked settles an entry, so that its state is committed.
func (l *Log) settleLocked(e *Entry) {
	if key := e.stateKey(); key != "" {
		l.states.Settle(key, e.rank, e.State())
	}
	l.marks.Settle(e.rank)
}

// manyStates is how many states to be committed make a commit come early.
const manyStates = 1000

// unlockAndWake ends a critical section that may have settled entries. before is how many states
// were ready before it.
func (l *Log) unlockAndWake(before int) {
	after := l.states.Ready()
	l.mu.Unlock()
	if before < manyStates && after >= manyStates {
		l.cfg.Committer.Wake()
	}
}

// release releases holds. Call it when their entries are settled or no longer pending: a saved
// position of a sink that has passed them must not meet a cursor that has them pending.
func release(holds []Hold) {
	for _, h := range holds {
		if h != nil {
			h.Release()
		}
	}
}

// memory is the newest part of the log.
type memory struct {
	// entries are in order of their positions. Entries that all listeners have acked (size 0) leave
	// when they are at the front, or when they are most of all: one that is not acked must not keep
	// all later ones.
	entries []*Entry
	base    Position // from which on everything that is not acked is in memory
	next    Position // of the next entry
	bytes   int
	count   int // of entries that are not acked
}

// changedLocked publishes how full memory is, and wakes all that wait.
func (l *Log) changedLocked() {
	l.cfg.Account.Set(l.memory.bytes)
	l.metrics.bytes.Set(float64(l.memory.bytes))
	l.metrics.entries.Set(float64(l.memory.count))
	l.cond.Broadcast()
}

// lookAgain is how long waitRoom waits at most.
const lookAgain = time.Second

// waitRoom waits until there is room in memory, or enough returns true. It waits only for a moment:
// nothing signals that space was freed on disk, or that other logs hold less of the shared budget,
// and the Spooler does not watch a log whose memory holds only spooled entries.
func (l *Log) waitRoom(ctx context.Context, enough func() bool) {
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = ratelimit.WaitCond(ctx, l.cond, func() bool { // the caller checks again
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

// boundLocked returns how much the log may hold in memory now.
func (l *Log) boundLocked() int { return l.cfg.Account.Bound(l.cfg.MemoryBytes) }

// find returns the entry at a position, nil when it is not in memory, or acked by all.
func (m *memory) find(at Position) *Entry {
	if n := m.index(at); n < len(m.entries) && m.entries[n].Position == at && m.entries[n].size > 0 {
		return m.entries[n]
	}
	return nil
}

// index returns the index of the first entry at or after a position.
func (m *memory) index(from Position) int {
	n, _ := slices.BinarySearchFunc(m.entries, from, func(e *Entry, at Position) int {
		return cmp.Compare(e.Position, at)
	})
	return n
}

// release removes an entry that all listeners have acked.
func (m *memory) release(e *Entry) {
	m.leave(e)
	// No listener reads it any more. Until the entry is dropped, it must not keep the object alive:
	// its strings share the object's memory.
	e.Change, e.DeltaVersion = event.Change{}, ""
}

// leave subtracts an entry from the sizes.
func (m *memory) leave(e *Entry) {
	m.bytes -= e.size
	m.count--
	e.size = 0
}

// trim drops entries that all listeners have acked.
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

// leaveFront removes entries from the front of memory while they lie on disk and while returns
// true. A listener that has not read them reads them from disk.
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

// unspooled returns the first entry that is neither settled nor on disk, nil for none.
func (m *memory) unspooled() *Entry {
	for _, e := range m.entries {
		if e.size > 0 && !e.spooled {
			return e
		}
	}
	return nil
}
