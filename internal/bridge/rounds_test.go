package bridge_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/testkit"
)

// rounds plays a randomised test as often as the flags say, each time in a bubble of its own, and
// says how to see a failure again: run is what -run has to be.
func rounds(t *testing.T, run string, play func(t *testing.T, seed uint64)) {
	t.Helper()
	for round := range testkit.Rounds(*modelRounds, 2) {
		seed := *modelSeed + uint64(round)
		if *modelSeed == 0 {
			seed = rand.Uint64() >> 1
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, seed) })
		})
		if !ok {
			t.Fatalf("to see it again: go test ./internal/bridge -run %s -bridge.model.rounds 1 -bridge.model.steps %d -bridge.model.seed %d", run, *modelSteps, seed)
		}
	}
}
