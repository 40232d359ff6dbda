package testkit

import (
	"math"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
)

// CheckLinear fails the test when the work on an input grows faster than the input. prepare makes
// the input of a size and returns the work. The work on 8 times the input may take 24 times the
// processor time: linear work takes some 8 times, quadratic work some 64 times. The least of
// several runs counts.
//
// It measures the whole process, so tests that use it must not run in parallel.
func CheckLinear(t *testing.T, size int, prepare func(size int) (work func())) {
	t.Helper()
	const times, most, rounds = 8, 24, 10
	small, large := prepare(size), prepare(times*size)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // else large pays for garbage, and small does not
	least := func(work func(), soFar int64) int64 {
		begin := processorTime(t)
		work()
		return min(soFar, processorTime(t)-begin)
	}
	a, b := int64(math.MaxInt64), int64(math.MaxInt64)
	for range rounds {
		runtime.GC()
		a, b = least(small, a), least(large, b)
		if b <= most*a {
			return
		}
	}
	t.Errorf("%d µs for a size of %d, %d µs for %d times the size: want at most %d times as long",
		a, size, b, times, most)
}

// processorTime is the time in microseconds that the process has computed so far.
func processorTime(t *testing.T) int64 {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return (used.Utime.Nano() + used.Stime.Nano()) / 1000
}
