package cli

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

func TestProcs(t *testing.T) {
	const one, all, more = "one processor", "all processors", "more than all"
	// Shares with a long wait, and with a large object.
	const waited, isLarge, floodOfLarge = 0.2, 0.21, 0.91
	for name, tt := range map[string]struct {
		shares []float64 // a second each
		want   string
		again  time.Duration
	}{
		"at first":                       {[]float64{0.1}, all, slowLook},
		"calm for a moment":              {[]float64{0.1, 0.1, 0.1, 0.1}, all, slowLook},
		"calm":                           {[]float64{0.1, 0.1, 0.1, 0.1, 0.1}, one, fastLook},
		"idle":                           {[]float64{0, 0, 0, 0, 0, 0.01}, one, slowLook},
		"calm with an interruption":      {[]float64{0.1, 0.1, 0.1, 0.4, 0.1, 0.1}, all, slowLook},
		"calm, then a little busier":     {[]float64{0, 0, 0, 0, 0, 0.4}, one, fastLook},
		"calm, then busy in one look":    {[]float64{0, 0, 0, 0, 0, 0.9}, one, fastLook},
		"calm, then a flood":             {[]float64{0, 0, 0, 0, 0, 0.9, 0.9}, all, slowLook},
		"calm, then a long wait":         {[]float64{0, 0, 0, 0, 0, waited}, one, fastLook},
		"calm, then long waits":          {[]float64{0, 0, 0, 0, 0, waited, waited}, all, slowLook},
		"busy, then a long wait":         {[]float64{0, 0, 0, 0, 0, 0.9, waited}, all, slowLook},
		"long waits now and then":        {[]float64{0, 0, 0, 0, 0, waited, 0.1, waited}, one, fastLook},
		"a long wait, and calm":          {[]float64{waited, 0, 0, 0, 0}, all, slowLook},
		"long waits, and calm":           {[]float64{waited, waited, 0, 0, 0, 0, 0}, one, slowLook},
		"a flood, and calm for a moment": {[]float64{0, 0, 0, 0, 0, 0.9, 0.9, 0, 0, 0, 0}, all, slowLook},
		"a flood, and calm":              {[]float64{0, 0, 0, 0, 0, 0.9, 0.9, 0, 0, 0, 0, 0}, one, slowLook},
		"a large object":                 {[]float64{isLarge}, more, slowLook},
		"calm, then a large object":      {[]float64{0, 0, 0, 0, 0, isLarge}, more, slowLook},
		"a large object, and calm for a moment": {
			[]float64{isLarge, 0, 0, 0, 0}, more, slowLook,
		},
		"a large object, and calm":  {[]float64{isLarge, 0, 0, 0, 0, 0}, one, slowLook},
		"large objects in a flood":  {[]float64{0.9, floodOfLarge, 0.9, 0.9}, more, slowLook},
		"a flood behind large ones": {[]float64{floodOfLarge, 0.9, 0.9, 0.9, 0.9, 0.9}, all, slowLook},
	} {
		t.Run(name, func(t *testing.T) {
			var p procs
			var again time.Duration
			for _, share := range tt.shares {
				again = p.decide(share, share == waited, share == isLarge || share == floodOfLarge, time.Second)
			}
			got := map[procs]string{{}: all, {one: true}: one, {more: true}: more}[procs{one: p.one, more: p.more}]
			if got != tt.want || again != tt.again {
				t.Errorf("%q, look after %s; want %q, %s", got, again, tt.want, tt.again)
			}
		})
	}
}

// The number of processors is left to GOMAXPROCS where the environment sets it.
func TestProcsFromEnvironment(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	before := runtime.GOMAXPROCS(0)
	boundProcs(context.Background(), nil, nil) // returns
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors, before %d", now, before)
	}
}

// In a bubble the time that a test waits costs no CPU.
func TestProcsBounds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	t.Setenv("GOMAXPROCS", "") // which tests may be run with
	runtime.SetDefaultGOMAXPROCS()
	before := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		large := make(chan struct{}, 1)
		go boundProcs(ctx, large, func() bool { return false })
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if n := runtime.GOMAXPROCS(0); n != want {
				t.Errorf("%s: %d processors, want %d", when, n, want)
			}
		}
		large <- struct{}{}
		expect("after a large object at the start", before+spareProcs)
		time.Sleep(calmTime + 2*slowLook)
		expect("after a calm time", 1)
		large <- struct{}{}
		expect("after a large object", before+spareProcs)
		time.Sleep(calmTime - slowLook)
		large <- struct{}{}
		time.Sleep(calmTime - slowLook)
		expect("with large objects", before+spareProcs)
		time.Sleep(calmTime + 2*slowLook)
		expect("after another calm time", 1)
		cancel()
		expect("after its end", before)
	})
}

// One processor that something else uses has a goroutine wait.
func TestLongWaitsAreSeen(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newProcessorWaits()
	testkit.Eventually(t, "a long wait is seen", func() bool {
		done := make(chan struct{})
		go close(done)
		for end := time.Now().Add(2 * longWait); time.Now().Before(end); {
		}
		<-done
		return w.grew()
	})
}
