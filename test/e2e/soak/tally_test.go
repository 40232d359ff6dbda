package soak_test

import (
	"testing"

	"github.com/kubebridge/bridge/test/e2e/soak"
)

func TestTally(t *testing.T) {
	witnessed := func(tally *soak.Tally) {
		for _, version := range []string{"5", "7"} {
			tally.Witness("a", version, false)
		}
		tally.Witness("a", "9", true)
	}
	for name, c := range map[string]struct {
		store func(*soak.Tally)
		want  string
	}{
		"everything": {func(tally *soak.Tally) {
			tally.Store("a", "5", false)
			tally.Store("a", "7", false)
			tally.Store("a", "8", true) // of a list, which does not know when
		}, "3 changes, 3 stored: 0 missing, 0 that no witness saw, 0 twice, 0 in a wrong order, 0 gaps"},
		"one is missing": {func(tally *soak.Tally) {
			tally.Store("a", "5", false)
			tally.Store("a", "9", true)
		}, "3 changes, 2 stored: 1 missing, 0 that no witness saw, 0 twice, 0 in a wrong order, 0 gaps"},
		"twice, and out of nothing": {func(tally *soak.Tally) {
			tally.Store("a", "5", false)
			tally.Store("a", "7", false)
			tally.Store("a", "7", false)
			tally.Store("a", "9", true)
			tally.Store("b", "6", false)
		}, "3 changes, 4 stored: 0 missing, 1 that no witness saw, 1 twice, 0 in a wrong order, 0 gaps"},
		"behind a later one, and behind the delete": {func(tally *soak.Tally) {
			tally.Store("a", "7", false)
			tally.Store("a", "5", false)
			tally.Store("a", "9", true)
			tally.Store("a", "8", false)
		}, "3 changes, 4 stored: 0 missing, 1 that no witness saw, 0 twice, 2 in a wrong order, 0 gaps"},
	} {
		t.Run(name, func(t *testing.T) {
			tally := soak.NewTally()
			witnessed(tally)
			c.store(tally)
			if got := tally.String(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
