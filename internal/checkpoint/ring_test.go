package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

func TestRing(t *testing.T) {
	t.Run("it holds the places between the first and the last", func(t *testing.T) {
		for seed := range uint64(50) {
			dice := rand.New(rand.NewPCG(seed, 0))
			r := newRing()
			var want []resource.Version
			for step := range 5000 {
				if dice.IntN(1000) < 500+200*(step/500%2*2-1) || r.len() == 0 { // it grows, and shrinks, by turns
					v := resource.Version(fmt.Sprint(step))
					if n := r.push(slot{version: v}); n != r.next-1 {
						t.Fatalf("seed %d: the place is %d, want %d", seed, n, r.next-1)
					}
					want = append(want, v)
				} else {
					r.pop()
					want = want[1:]
				}
				if r.len() != len(want) {
					t.Fatalf("seed %d: %d places, want %d", seed, r.len(), len(want))
				}
				for i, v := range want {
					if got := r.at(r.first + uint64(i)).version; got != v {
						t.Fatalf("seed %d: place %d is %s, want %s", seed, i, got, v)
					}
				}
			}
		}
	})
	t.Run("its memory follows their number", func(t *testing.T) {
		r := newRing()
		for range 100_000 {
			r.push(slot{})
		}
		for r.len() > 1 {
			r.pop()
		}
		if got := len(r.buf); got != minRing {
			t.Errorf("it has room for %d places, want %d", got, minRing)
		}
	})
	t.Run("a place that is settled is not found any more", func(t *testing.T) {
		r := newRing()
		n := r.push(slot{})
		r.pop()
		defer func() {
			if recover() == nil {
				t.Error("it is found")
			}
		}()
		r.at(n)
	})
}
