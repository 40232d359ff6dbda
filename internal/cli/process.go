package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// NewLogger makes the logger that is handed to everything, and lets client-go's klog, which knows
// only a global one, write to it.
func NewLogger(c config.Log, w io.Writer) *slog.Logger {
	log, _ := NewLeveledLogger(c, w)
	return log
}

// NewLeveledLogger is NewLogger, with the level, which may be changed at any time.
func NewLeveledLogger(c config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.Level)) // the configuration has checked it
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	var handler slog.Handler
	if c.Format == "json" || c.Format == "auto" && !terminal.Is(w) {
		handler = slog.NewJSONHandler(w, options)
	} else {
		handler = slog.NewTextHandler(w, options)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log.With("component", "client-go"))
	return log, level
}

// maxAttr is the longest value in the log, in bytes. The subject of an object with the longest
// names of Kubernetes has 600. The name of a Role has no limit, and who may create one chooses it.
const maxAttr = 1 << 10

// readable shortens values, except for a stack, which has a limit of its own. It writes durations
// as "1.5s" in JSON too, where slog writes nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindString, slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
		if text := a.Value.String(); a.Key != "stack" && len(text) > maxAttr {
			a.Value = slog.StringValue(fmt.Sprintf("%s… (%d bytes)",
				strings.ToValidUTF8(text[:maxAttr], ""), len(text)))
		}
	default: // short
	}
	return a
}

// UntilSignal returns a context that ends with the first SIGINT or SIGTERM, whose name is its
// cause. A second signal ends the process at once: somebody does not want to wait for the drain.
// stop ends the watch for signals.
func UntilSignal(
	ctx context.Context, log *slog.Logger, exit func(code int),
) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go watchSignals(signals, done, func(first os.Signal) {
		cancel(fmt.Errorf("%s signal received", first))
	}, func(second os.Signal) {
		log.Warn("second signal: ending at once; what was not sent is sent after the next start",
			"signal", second.String())
		exit(ExitFailed)
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(context.Canceled)
	}
}

// repeatWindow is how long after the first a second signal is taken for the same one: timeout(1),
// and others that signal a process and then its group, send it twice.
const repeatWindow = 250 * time.Millisecond

// watchSignals calls begin at the first signal and end at a second one, after which it returns. It
// also returns when done is closed.
func watchSignals(signals <-chan os.Signal, done <-chan struct{}, begin, end func(os.Signal)) {
	var began time.Time
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			switch {
			case began.IsZero():
				began = time.Now()
				begin(s)
			case time.Since(began) >= repeatWindow:
				end(s)
				return
			}
		}
	}
}

// A process that uses less than calmShare of one processor for calmTime is given one processor. It
// is given all when in two looks in a row it uses more than busyShare of one, or has a goroutine
// that was ready wait for longWait. With all of them, one such look restarts calmTime.
//
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

// decide takes the share of one processor that was used for a time, and whether something ready had
// a long wait for a processor meanwhile, or a large object has come. It gives the time after which
// to look again.
func (p *procs) decide(share float64, waited, isLarge bool, lasted time.Duration) time.Duration {
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

// set has the scheduler use as many as decide has said.
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
// reports whether goroutines have waited for long since it was asked last: processorWaits.grew.
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
		timer.Reset(p.decide(share, late(), isLarge, lasted))
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

// processorWaits counts how often a goroutine that was ready has waited for a processor for
// longWait. The runtime notes one of eight.
type processorWaits struct {
	sample []metrics.Sample
	before uint64
}

func newProcessorWaits() *processorWaits {
	w := &processorWaits{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	w.grew()
	return w
}

// grew reports whether there were more since the last call.
func (w *processorWaits) grew() bool {
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

// cpuTime returns what this process has used.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// startPercent and syncedPercent are how much garbage there may be for what is alive, until all
// resources are in sync and afterwards. The first lists make the peak of memory: 50 instead of
// Go's 100 took 46 MB off that of 100,000 pods. Later changes make garbage of their own size, and
// with 50 the collector took 6 % of the CPU of a flood more.
const startPercent, syncedPercent = 50, 100

// boundMemory limits the garbage collector where the environment (GOGC, GOMEMLIMIT) does not:
// garbage in proportion to what the configuration lets be alive, and in a container nine tenths of
// its limit. There is no limit of our own beyond: an index of a cluster that has grown could exceed
// it, and the collector would do nothing but try. The result is called when all resources are in
// sync.
func boundMemory(log *slog.Logger, container memlimit.Provider) (synced func()) {
	limit, err := memlimit.Set(memlimit.WithProvider(container))
	log.Debug("the garbage collector's limit is set", "bytes", limit, "err", err)
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(startPercent)
	return func() { debug.SetGCPercent(syncedPercent) }
}

// queueBytes returns how much the queues of all resources may hold together: a quarter of the
// memory that the process may use. As much again may be garbage, and the rest is for the index, the
// sinks and the state database. The process may use what boundMemory has set, else the memory of
// the machine. 0 where that is not known.
func queueBytes(machine memlimit.Provider) int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		total, err := machine()
		if err != nil {
			return 0
		}
		limit = int64(min(total, math.MaxInt64))
	}
	return limit / 4
}

// settling is how long after the first lists most of what they have read is sent and committed.
const settling = 3 * time.Second

// freeMemory gives back to the system what the start and the first lists needed, a little later.
func freeMemory(ctx context.Context) {
	if ratelimit.Sleep(ctx, settling) == nil {
		debug.FreeOSMemory()
		freeProgram()
	}
}

// sampleMemory takes the samples of the memory profile where it can be seen, and only there: each
// costs a look at the stack, and there would be one for some 60 updates.
func sampleMemory(seen bool) {
	if !seen {
		runtime.MemProfileRate = 0
	}
}
