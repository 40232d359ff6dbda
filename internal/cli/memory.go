package cli

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// gcPercent is how much garbage there may be for what is alive. Most of what is alive are bytes of
// objects and of the database, without pointers, which cost the collector little: 50 instead of
// Go's 100 took 46 MB off the peak of a first snapshot of 100,000 pods.
const gcPercent = 50

// boundMemory tells the garbage collector what it may use, where the environment (GOGC, GOMEMLIMIT)
// does not: garbage in proportion to what the configuration lets be alive, and in a container nine
// tenths of its limit. There is no limit of our own beyond: an index of a cluster that has grown
// could exceed it, and the collector would do nothing but try.
func boundMemory(log *slog.Logger, container memlimit.Provider) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit, err := memlimit.Set(memlimit.WithProvider(container))
	log.Debug("the garbage collector's limit is set", "bytes", limit, "err", err)
}

// sampleMemory takes the samples of the memory profile where it can be seen, and only there: each
// costs a look at the stack, and there would be one for some 60 updates.
func sampleMemory(seen bool) {
	if !seen {
		runtime.MemProfileRate = 0
	}
}
