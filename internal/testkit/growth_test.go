package testkit_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// TestGrowth has a clock that only the work moves.
func TestGrowth(t *testing.T) {
	for name, tt := range map[string]struct {
		cost     func(size, run int) int // of a run of a size
		isLinear bool
	}{
		"linear":                    {func(n, _ int) int { return n }, true},
		"n log n, about":            {func(n, _ int) int { return n * (10 + n/1000) }, true},
		"quadratic":                 {func(n, _ int) int { return n * n }, false},
		"quadratic beside linear":   {func(n, _ int) int { return 200*n + n*n }, false},
		"quadratic, the first cold": {func(n, run int) int { return n*n + 50_000_000/(1+1000*run) }, false},
		"linear, and others disturb": {func(n, run int) int {
			if run%3 > 0 && n > 1000 {
				return 30 * n
			}
			return n
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := 0
			err := testkit.Growth(func() int64 { return int64(now) }, 1000, func(size int) func() {
				run := 0
				return func() { now += tt.cost(size, run); run++ }
			})
			if (err == nil) != tt.isLinear {
				t.Errorf("got %v", err)
			}
		})
	}
}

var sum int

// TestQuadratic measures the processor time of work that is quadratic.
func TestQuadratic(t *testing.T) {
	err := testkit.ProcessorGrowth(300, func(size int) func() {
		list := make([]int, size)
		return func() {
			for range list {
				for i := range list {
					sum += list[i]
				}
			}
		}
	})
	if err == nil {
		t.Error("quadratic work passes")
	}
}
