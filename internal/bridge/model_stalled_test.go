package bridge_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/testkit"
)

// stalls are objects whose events a broker refuses, for as long as the test wants. Their dice are
// their own.
type stalls struct {
	dice  *rand.Rand
	stuck map[*testkit.Broker]*atomic.Pointer[string] // the name of the object
	count int
}

// stall makes the brokers such that now and then they take nothing of an object.
func (m *model) stall(seed uint64) {
	m.stalls = &stalls{dice: rand.New(rand.NewPCG(seed, 3)), stuck: map[*testkit.Broker]*atomic.Pointer[string]{}}
	for _, b := range m.brokers {
		name := new(atomic.Pointer[string])
		m.stalls.stuck[b] = name
		b.OnMessage = func(e *event.Event) (a testkit.Answer) {
			if is := name.Load(); is != nil && *is == e.Name {
				a.Err = testkit.ErrBusy
			}
			return a
		}
	}
}

func (s *stalls) step(m *model) {
	if s == nil {
		return
	}
	for _, b := range m.brokers {
		switch name := s.stuck[b]; s.dice.IntN(40) {
		case 0:
			name.Store(nil)
			m.note("%s takes everything", b.Name)
		case 1, 2:
			_, is := m.cluster.names[s.dice.IntN(len(m.cluster.names))].Split()
			name.Store(&is)
			m.note("%s takes nothing of %s", b.Name, is)
		}
	}
}

func (s *stalls) heal() {
	if s == nil {
		return
	}
	for _, name := range s.stuck {
		name.Store(nil)
	}
}

// TestModelOfStalledObjects is TestModelUnderAllFaults with brokers that take nothing of an object
// for long. Changes of other objects come amid a list then, and what ends a list comes late: it is
// still true.
func TestModelOfStalledObjects(t *testing.T) {
	late := 0
	for round := range testkit.Rounds(*modelRounds, 2) {
		seed := *modelSeed + uint64(round)
		if *modelSeed == 0 {
			seed = rand.Uint64() >> 1
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, seed)
				m.stall(seed)
				m.play(*modelSteps)
				late += m.stalls.count
			})
		})
		if !ok {
			t.Fatalf("to see it again: go test ./internal/bridge -run OfStalledObjects -bridge.model.rounds 1 -bridge.model.steps %d -bridge.model.seed %d", *modelSteps, seed)
		}
	}
	if late == 0 && !testing.Short() {
		t.Error("no change came amid a list: what is stalled keeps back others")
	}
}
