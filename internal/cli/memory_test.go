package cli

import (
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Garbage is bounded, unless the environment sets the limits.
func TestGarbageLimits(t *testing.T) {
	tests := map[string]struct {
		env           map[string]string
		container     memlimit.Provider
		start, synced int
		limit         int64
	}{
		"nowhere":               {container: limited(memlimit.ErrNoLimit), start: startPercent, synced: syncedPercent, limit: math.MaxInt64},
		"without cgroups":       {container: limited(memlimit.ErrNoCgroup), start: startPercent, synced: syncedPercent, limit: math.MaxInt64},
		"in a container":        {container: memlimit.Limit(1000 << 20), start: startPercent, synced: syncedPercent, limit: 900 << 20},
		"GOMEMLIMIT says":       {env: map[string]string{"GOMEMLIMIT": "1GiB"}, container: memlimit.Limit(1000 << 20), start: startPercent, synced: syncedPercent, limit: math.MaxInt64},
		"GOGC says, and limits": {env: map[string]string{"GOGC": "70"}, container: memlimit.Limit(1000 << 20), start: 70, synced: 70, limit: 900 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// as the runtime had set them from the environment
			percent, limit := debug.SetGCPercent(70), debug.SetMemoryLimit(math.MaxInt64)
			t.Cleanup(func() {
				debug.SetGCPercent(percent)
				debug.SetMemoryLimit(limit)
			})
			for _, key := range []string{"GOGC", "GOMEMLIMIT"} {
				if t.Setenv(key, tt.env[key]); tt.env[key] == "" {
					_ = os.Unsetenv(key) // Setenv brings back what it was
				}
			}
			synced := boundMemory(slog.New(slog.DiscardHandler), tt.container)
			if got := gcPercent(); got != tt.start {
				t.Errorf("GC percent %d, want %d", got, tt.start)
			}
			if synced(); gcPercent() != tt.synced {
				t.Errorf("GC percent %d when in sync, want %d", gcPercent(), tt.synced)
			}
			if got := debug.SetMemoryLimit(-1); got != tt.limit {
				t.Errorf("memory limit %d, want %d", got, tt.limit)
			}
		})
	}
}

func gcPercent() int {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	return percent
}

func limited(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }

// Memory is sampled where the profile can be read.
func TestMemoryProfile(t *testing.T) {
	rate := runtime.MemProfileRate
	t.Cleanup(func() { runtime.MemProfileRate = rate })
	sampleMemory(true)
	if runtime.MemProfileRate != rate {
		t.Errorf("with pprof a sample for every %d bytes", runtime.MemProfileRate)
	}
	sampleMemory(false)
	if runtime.MemProfileRate != 0 {
		t.Errorf("without pprof a sample for every %d bytes", runtime.MemProfileRate)
	}
}

func TestQueueBytes(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	debug.SetMemoryLimit(math.MaxInt64)
	if got := queueBytes(memlimit.Limit(8 << 30)); got != 2<<30 {
		t.Errorf("%d bytes of a machine with 8 GiB", got)
	}
	if got := queueBytes(limited(memlimit.ErrNoLimit)); got != 0 {
		t.Errorf("%d bytes of a machine whose memory is not known, want no bound", got)
	}
	debug.SetMemoryLimit(1 << 30)
	if got := queueBytes(memlimit.Limit(8 << 30)); got != 256<<20 {
		t.Errorf("%d bytes of a limit of 1 GiB", got)
	}
}
