package cli

import (
	"context"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

func TestProcs(t *testing.T) {
	const waited = 0.2 // a share with a long wait
	for name, tt := range map[string]struct {
		shares []float64 // a second each
		one    bool
		again  time.Duration
	}{
		"at first":                       {[]float64{0.1}, false, slowLook},
		"calm for a moment":              {[]float64{0.1, 0.1, 0.1, 0.1}, false, slowLook},
		"calm":                           {[]float64{0.1, 0.1, 0.1, 0.1, 0.1}, true, fastLook},
		"idle":                           {[]float64{0, 0, 0, 0, 0, 0.01}, true, slowLook},
		"calm with an interruption":      {[]float64{0.1, 0.1, 0.1, 0.4, 0.1, 0.1}, false, slowLook},
		"calm, then a little busier":     {[]float64{0, 0, 0, 0, 0, 0.4}, true, fastLook},
		"calm, then a flood":             {[]float64{0, 0, 0, 0, 0, 0.9}, false, slowLook},
		"calm, then a long wait":         {[]float64{0, 0, 0, 0, 0, waited}, false, slowLook},
		"a long wait, and calm":          {[]float64{waited, 0, 0, 0, 0, 0}, true, slowLook},
		"a flood, and calm for a moment": {[]float64{0, 0, 0, 0, 0, 0.9, 0, 0, 0, 0}, false, slowLook},
		"a flood, and calm":              {[]float64{0, 0, 0, 0, 0, 0.9, 0, 0, 0, 0, 0}, true, slowLook},
	} {
		t.Run(name, func(t *testing.T) {
			var p procs
			var again time.Duration
			for _, share := range tt.shares {
				again = p.next(share, share == waited, time.Second)
			}
			if p.one != tt.one || again != tt.again {
				t.Errorf("one processor: %v, look after %s; want %v, %s", p.one, again, tt.one, tt.again)
			}
		})
	}
}

// The number of processors is left to GOMAXPROCS where the environment sets it.
func TestProcsFromEnvironment(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	before := runtime.GOMAXPROCS(0)
	boundProcs(context.Background(), nil) // returns
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors, before %d", now, before)
	}
}

// In a bubble the time that a test waits costs no CPU.
func TestProcsBounds(t *testing.T) {
	if _, ok := os.LookupEnv("GOMAXPROCS"); ok || runtime.GOMAXPROCS(0) == 1 {
		t.Skip("there is one processor, or the environment says how many")
	}
	before := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		large := make(chan struct{}, 1)
		go boundProcs(ctx, large)
		calm := func() {
			t.Helper()
			time.Sleep(calmTime + 2*slowLook)
			if n := runtime.GOMAXPROCS(0); n != 1 {
				t.Errorf("after %s of calm: %d processors", calmTime, n)
			}
		}
		calm()
		large <- struct{}{}
		synctest.Wait()
		if n := runtime.GOMAXPROCS(0); n != before {
			t.Errorf("after a large object: %d processors, want %d", n, before)
		}
		time.Sleep(calmTime - slowLook)
		large <- struct{}{}
		time.Sleep(calmTime - slowLook)
		if n := runtime.GOMAXPROCS(0); n != before {
			t.Errorf("with large objects: %d processors, want %d", n, before)
		}
		calm()
		cancel()
		synctest.Wait()
		if n := runtime.GOMAXPROCS(0); n != before {
			t.Errorf("after its end: %d processors, want %d", n, before)
		}
	})
}

// One processor that something else uses has a goroutine wait.
func TestLongWaitsAreSeen(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newWaits()
	testkit.Eventually(t, "a long wait is seen", func() bool {
		done := make(chan struct{})
		go close(done)
		for end := time.Now().Add(2 * longWait); time.Now().Before(end); {
		}
		<-done
		return w.grew()
	})
}
