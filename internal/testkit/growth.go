package testkit

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
)

// CheckLinear fails the test when the work on an input grows faster than the input. prepare makes
// the input of a size and returns the work. The work on 8 times the input may take 24 times the
// processor time: linear work takes some 8 times, quadratic work some 64 times.
//
// It measures the whole process, so tests that use it must not run in parallel.
func CheckLinear(t *testing.T, size int, prepare func(size int) (work func())) {
	t.Helper()
	if err := ProcessorGrowth(size, prepare); err != nil {
		t.Error(err)
	}
}

// ProcessorGrowth is CheckLinear for who expects an error.
func ProcessorGrowth(size int, prepare func(size int) (work func())) error {
	return Growth(processorTime, size, prepare)
}

// Growth is ProcessorGrowth with a clock of the caller's, in microseconds.
//
// Both sizes run once before they are measured. A first run is cold and slow, and quadratic work
// would pass beside it. Then the least of several runs counts: at least warmRounds of each size.
// Other work of the machine makes single runs slower, so more rounds follow while the growth is too
// large.
func Growth(clock func() int64, size int, prepare func(size int) (work func())) error {
	const times, most, warmRounds, rounds = 8, 24, 3, 10
	small, large := prepare(size), prepare(times*size)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // else large pays for garbage, and small does not
	least := func(work func(), soFar int64) int64 {
		begin := clock()
		work()
		return min(soFar, clock()-begin)
	}
	small()
	large()
	a, b := int64(math.MaxInt64), int64(math.MaxInt64)
	for round := range rounds {
		runtime.GC()
		a, b = least(small, a), least(large, b)
		if round+1 >= warmRounds && b <= most*a {
			return nil
		}
	}
	return fmt.Errorf("%d µs for a size of %d, %d µs for %d times the size: want at most %d times as "+
		"long", a, size, b, times, most)
}

// processorTime is the time in microseconds that the process has computed so far.
func processorTime() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // can't fail for the process itself
	}
	return (used.Utime.Nano() + used.Stime.Nano()) / 1000
}

// Allocated is how many bytes the process allocates while do runs, also those that are free again.
func Allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Heap is how many bytes of the heap are in use, after a collection.
func Heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
