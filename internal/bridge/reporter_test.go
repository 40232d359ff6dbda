package bridge

import (
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

// TestPositionHistory has a position reported that is old enough and covered, and few of them kept.
func TestPositionHistory(t *testing.T) {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	needs := map[string]informer.Frontier{"pods": {}}
	covers := func(string, *informer.Frontier) bool { return true }
	never := func(string, *informer.Frontier) bool { return false }
	want := func(t *testing.T, position []byte, second int) {
		t.Helper()
		if !slices.Equal(position, []byte{byte(second)}) {
			t.Errorf("position %d, want that of second %d", position, second)
		}
	}
	t.Run("the newest that is old enough", func(t *testing.T) {
		var h pastPositions
		for second := range 10 {
			h.addStep(&positionStep{time: at(second), position: []byte{byte(second)}})
		}
		want(t, h.covered(at(9), never), 6) // none needs anything
	})
	t.Run("one that needs more, and all behind it, when that is covered", func(t *testing.T) {
		var h pastPositions
		for second := range 10 {
			s := &positionStep{time: at(second), position: []byte{byte(second)}}
			if second == 4 {
				s.needs = needs
			}
			h.addStep(s)
		}
		want(t, h.covered(at(9), never), 3)
		want(t, h.covered(at(9), covers), 6)
	})
	t.Run("the oldest stays, and some of the others, while nothing is covered", func(t *testing.T) {
		var h pastPositions
		for second := range 200 {
			h.addStep(&positionStep{time: at(second), position: []byte{byte(second)}, needs: needs})
			want(t, h.covered(at(second), never), 0)
		}
		if n := len(h.steps); n > maxPositions {
			t.Errorf("%d are kept, at most %d should be", n, maxPositions)
		}
		isOlder := func(a, b *positionStep) int { return a.time.Compare(b.time) }
		if !slices.IsSortedFunc(h.steps, isOlder) || h.steps[len(h.steps)-1].position[0] != 199 {
			t.Error("they are not in order up to the newest")
		}
		want(t, h.covered(at(202), covers), 199)
	})
	t.Run("none without any", func(t *testing.T) {
		var h pastPositions
		h.addStep(&positionStep{time: began})
		if position := h.covered(at(9), covers); position != nil {
			t.Errorf("position %d", position)
		}
	})
}
