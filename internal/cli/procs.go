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

// Who uses less than calmShare of one processor for calmTime is given one. Who uses more than
// busyShare of it, or has something ready wait for longWait, in two looks in a row, is given all.
// Who has all already keeps them: there one such look restarts calmTime.
// One look alone shows what is over when it is seen: the state database writes a table every few
// seconds, which takes a processor for 5 ms. A process that does little is looked at less often.
const (
	calmShare, busyShare = 0.3, 0.5
	calmTime             = 5 * time.Second
	longWait             = 4 * time.Millisecond

	littleShare        = 0.03
	slowLook, fastLook = time.Second, 100 * time.Millisecond
)

// spareProcs is how many processors the scheduler has beyond those that there are, while large
// objects come. A goroutine that works on one takes a processor for milliseconds; with spare ones,
// others that become ready need not wait for it. The kernel shares the real processors between
// them, a few milliseconds each, and prefers the thread that has used least. In TestAbuse 1 % of a
// tenant's changes waited 6.1 ms for a worker with two processors, and 2.2 ms with six.
const spareProcs = 4

// procs decides how many processors the scheduler has: one, all, or more than there are.
type procs struct {
	calm, small time.Duration // for how long little was used, and no large object came
	one, more   bool
	strained    bool // at the last look
}

// next takes the share of one processor that was used for a time, and whether something ready had
// a long wait for a processor meanwhile, or a large object has come. It gives the time after which
// to look again.
func (p *procs) next(share float64, waited, isLarge bool, lasted time.Duration) time.Duration {
	before := p.strained
	p.strained = share > busyShare || waited
	switch {
	case isLarge, p.strained && (before || !p.one):
		p.calm, p.one = 0, false
	case share > calmShare:
		p.calm = 0
	default:
		p.calm += lasted
		p.one = p.one || p.calm >= calmTime
	}
	if p.small += lasted; isLarge {
		p.small = 0
	}
	p.more = isLarge || p.more && p.small < calmTime
	if p.one && share > littleShare {
		return fastLook
	}
	return slowLook
}

// set has the scheduler use as many as next has decided.
func (p *procs) set() {
	if p.one {
		runtime.GOMAXPROCS(1)
		return
	}
	runtime.SetDefaultGOMAXPROCS()
	if p.more {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareProcs)
	}
}

// boundProcs gives the scheduler one processor while one is enough, until ctx ends; unless the
// environment (GOMAXPROCS) says how many. With more, each goroutine that becomes ready has an idle
// processor woken to look for work. A change passes five goroutines, and at 500 changes a second
// that was two fifths of what one costs. With one processor there were 7.8 to 8.5 context switches
// for each change instead of 12.3 to 13.4, for 0.75 to 0.80 of the CPU. The price is p99: 1.2 to
// 2.0 ms instead of 0.8 to 0.9. One processor at all times made floods a fifth slower.
//
// large has an element when a large object has come: work on it is about to take a processor for
// milliseconds. From then on there are more than all, until none has come for calmTime. late
// reports whether goroutines have waited for long since it was asked last: waits.grew.
func boundProcs(ctx context.Context, large <-chan struct{}, late func() bool) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	var p procs
	defer runtime.SetDefaultGOMAXPROCS()
	used, at := cpuTime(), time.Now()
	timer := time.NewTimer(slowLook)
	defer timer.Stop()
	for {
		wake := large
		if p.more { // it is early enough at the next look
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
		nowUsed, now, before := cpuTime(), time.Now(), p
		lasted := now.Sub(at)
		share := (nowUsed - used).Seconds() / lasted.Seconds()
		timer.Reset(p.next(share, late(), isLarge, lasted))
		used, at = nowUsed, now
		if p.one != before.one || p.more != before.more {
			p.set()
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
