package changelog_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// entries are those of one informer: of which object each is, and whether it is settled.
type entries struct {
	keys    []resource.Key
	settled []bool
}

// states is the rule L4 without anything clever: of each object, that of the last entry in the
// settled prefix of its entries.
func (e *entries) states() map[resource.Key]uint64 {
	states, stopped := map[resource.Key]uint64{}, map[resource.Key]bool{}
	for i, key := range e.keys {
		if stopped[key] = stopped[key] || !e.settled[i]; !stopped[key] {
			states[key] = uint64(i + 1)
		}
	}
	return states
}

// permute calls do with each order of n.
func permute(n int, do func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var from func(i int)
	from = func(i int) {
		if i == n {
			do(order)
			return
		}
		for j := i; j < n; j++ {
			order[i], order[j] = order[j], order[i]
			from(i + 1)
			order[i], order[j] = order[j], order[i]
		}
	}
	from(0)
}

func TestStates(t *testing.T) {
	// check compares what was committed, and what is to be committed, with the rule.
	check := func(t *testing.T, s *changelog.States, e *entries, committed map[resource.Key]uint64, failing bool) {
		t.Helper()
		taken := s.Drain()
		if failing {
			s.PutBack(taken)
			taken = s.Drain()
		}
		for key, state := range taken {
			committed[key] = state.Seq
		}
		s.Committed(taken)
		if want := e.states(); !maps.Equal(committed, want) {
			t.Fatalf("%v of %v: committed are %v, want %v", e.settled, e.keys, committed, want)
		}
	}
	state := func(i int) store.NewState { return store.NewState{Seq: uint64(i + 1)} }
	t.Run("it is the last of the settled prefix, in every order of settling", func(t *testing.T) {
		const n = 5
		for objects := range 1 << n {
			permute(n, func(order []int) {
				s, e := changelog.NewStates(), &entries{settled: make([]bool, n)}
				committed := map[resource.Key]uint64{}
				for i := range n {
					e.keys = append(e.keys, resource.Key(fmt.Sprint("p", objects>>i&1)))
					s.Append(e.keys[i], changelog.Rank(i+1))
				}
				for _, i := range order {
					s.Settle(e.keys[i], changelog.Rank(i+1), state(i))
					e.settled[i] = true
					check(t, s, e, committed, i%2 == 0)
				}
			})
		}
	})
	t.Run("entries come while others are not settled", func(t *testing.T) {
		permute(7, func(order []int) {
			s, e, committed := changelog.NewStates(), &entries{}, map[resource.Key]uint64{}
			for _, i := range order {
				at := len(e.keys)
				e.keys, e.settled = append(e.keys, "p"), append(e.settled, false)
				s.Append("p", changelog.Rank(at+1))
				if i <= at && !e.settled[i] {
					s.Settle("p", changelog.Rank(i+1), state(i))
					e.settled[i] = true
				}
				check(t, s, e, committed, false)
			}
		})
	})
	t.Run("what a failed commit gives back is older than what was settled since", func(t *testing.T) {
		s := changelog.NewStates()
		for i := range 2 {
			s.Append("p", changelog.Rank(i+1))
		}
		s.Settle("p", 1, state(0))
		taken := s.Drain()
		s.Settle("p", 2, state(1))
		s.PutBack(taken)
		if got := s.Drain()["p"].Seq; got != 2 {
			t.Errorf("the state of entry %d is to be committed, want 2", got)
		}
	})
}
