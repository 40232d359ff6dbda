package changelog

import (
	"cmp"
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// States knows which state of each object is to be committed: that of the last entry in the settled
// prefix of the object's entries (L4). Entries of one object may be settled in any order, since
// some are for some listeners only. Were a later state committed while an earlier entry is not
// settled, a replay after a crash would take that entry for covered, and it would be lost. The
// watermark needs no such care: the earlier entry holds it.
type States struct {
	open  map[resource.Key]*chain
	free  *chain // that are not used, linked by next
	ready map[resource.Key]store.Settled
	spare map[resource.Key]store.Settled // empty, for after the next Drain; nil for none
}

// chain is the entries of an object from the first that is not settled, in order. Of those that are
// settled one behind the other only the last is there.
type chain struct {
	queue[link]
	next *chain
}

type link struct {
	at    Place
	state *store.Settled // nil while the entry is not settled
}

// maxSpare is how many states there may have been in a map that is used again: one that has grown
// does not shrink.
const maxSpare = 4096

// NewStates has no entries and nothing to commit.
func NewStates() *States {
	return &States{open: map[resource.Key]*chain{}, ready: map[resource.Key]store.Settled{}}
}

// Append takes the next entry of an object, which will leave a state.
func (s *States) Append(key resource.Key, at Place) {
	c := s.open[key]
	if c == nil {
		if c = s.free; c == nil {
			c = &chain{}
		} else {
			s.free, c.next = c.next, nil
		}
		s.open[key] = c
	}
	c.push(link{at: at})
}

// Settle notes that an entry is settled, and the state that it leaves.
func (s *States) Settle(key resource.Key, at Place, state store.Settled) {
	c := s.open[key]
	i, _ := slices.BinarySearchFunc(c.live(), at, func(l link, at Place) int {
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
func (c *chain) settle(i int, state store.Settled) {
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
func (s *States) Drain() map[resource.Key]store.Settled {
	if len(s.ready) == 0 { // else the commit and what is settled meanwhile would share the map
		return nil
	}
	taken := s.ready
	if s.ready, s.spare = s.spare, nil; s.ready == nil {
		s.ready = make(map[resource.Key]store.Settled, min(len(taken), maxSpare))
	}
	return taken
}

// Committed takes back the map of what is durable, to use it again.
func (s *States) Committed(taken map[resource.Key]store.Settled) {
	if n := len(taken); n > 0 && n <= maxSpare {
		clear(taken)
		s.spare = taken
	}
}

// PutBack takes back what a failed commit did not write. What was settled since is later.
func (s *States) PutBack(taken map[resource.Key]store.Settled) {
	for key, state := range taken {
		if _, isLater := s.ready[key]; !isLater {
			s.ready[key] = state
		}
	}
}
