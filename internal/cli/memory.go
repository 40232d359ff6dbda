package cli

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

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

// queueBytes is how much the queues of all resources may hold together: a quarter of the memory
// that the process may use. As much again may be garbage, and the rest is for the index, the sinks
// and the state database. The process may use what boundMemory has set, else the memory of the
// machine. 0 where that is not known.
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
