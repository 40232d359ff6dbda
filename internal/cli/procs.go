package cli

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"syscall"
	"time"
)

// Who uses less than calmShare of one processor for calmTime is given one; who uses more than
// busyShare of it, or has something ready wait for longWait, all. A process that does little is
// looked at less often.
const (
	calmShare, busyShare = 0.3, 0.5
	calmTime             = 5 * time.Second
	longWait             = 4 * time.Millisecond

	littleShare        = 0.03
	slowLook, fastLook = time.Second, 100 * time.Millisecond
)

// procs decides whether the scheduler has one processor or all.
type procs struct {
	calm time.Duration
	one  bool
}

// next takes the share of one processor that was used for a time, and whether something ready had
// a long wait for a processor meanwhile, or will have one behind a large object. It gives the time
// after which to look again.
func (p *procs) next(share float64, waited bool, lasted time.Duration) time.Duration {
	switch {
	case share > busyShare, waited:
		p.calm, p.one = 0, false
	case share > calmShare:
		p.calm = 0
	default:
		p.calm += lasted
		p.one = p.one || p.calm >= calmTime
	}
	if p.one && share > littleShare {
		return fastLook
	}
	return slowLook
}

// boundProcs gives the scheduler one processor while one is enough, until ctx ends; unless the
// environment (GOMAXPROCS) says how many. With more, each goroutine that becomes ready has an idle
// processor woken to look for work. A change passes five goroutines, and at 500 changes a second
// that was two fifths of what one costs.
//
// large has an element when a large object has come: work on it is about to take a processor for
// milliseconds.
func boundProcs(ctx context.Context, large <-chan struct{}) {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	var p procs
	defer func() {
		if p.one {
			runtime.SetDefaultGOMAXPROCS()
		}
	}()
	used, at := cpuTime(), time.Now()
	waits := newWaits()
	timer := time.NewTimer(slowLook)
	defer timer.Stop()
	for {
		wake := large // with all processors it is early enough at the next look
		if !p.one {
			wake = nil
		}
		isLarge := false
		select {
		case <-ctx.Done():
			return
		case <-wake:
			isLarge = true
		case <-timer.C:
			isLarge = received(large)
		}
		nowUsed, now, one := cpuTime(), time.Now(), p.one
		lasted := now.Sub(at)
		share := (nowUsed - used).Seconds() / lasted.Seconds()
		timer.Reset(p.next(share, waits.grew() || isLarge, lasted))
		used, at = nowUsed, now
		switch {
		case p.one && !one:
			runtime.GOMAXPROCS(1)
		case !p.one && one:
			runtime.SetDefaultGOMAXPROCS()
		}
	}
}

func received(from <-chan struct{}) bool {
	select {
	case <-from:
		return true
	default:
		return false
	}
}

// waits counts how often a goroutine that was ready has waited for a processor for longWait. The
// runtime notes one of eight.
type waits struct {
	sample []metrics.Sample
	before uint64
}

func newWaits() *waits {
	w := &waits{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	w.grew()
	return w
}

// grew reports whether there were more since the last call.
func (w *waits) grew() bool {
	metrics.Read(w.sample)
	h := w.sample[0].Value.Float64Histogram()
	first, _ := slices.BinarySearch(h.Buckets, longWait.Seconds())
	var n uint64
	for _, count := range h.Counts[min(first, len(h.Counts)):] {
		n += count
	}
	grew := n > w.before
	w.before = n
	return grew
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
