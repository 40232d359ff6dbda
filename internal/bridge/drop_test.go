package bridge_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// churn writes one object so often, each time with 2 KiB of noise.
func (r *rig) churn(key resource.Key, times int) (last resource.Version) {
	for range times {
		noise := make([]byte, 2<<10)
		for i := range noise {
			noise[i] = 'a' + byte(rand.IntN(26))
		}
		last = r.Update(key, func(obj map[string]any) { obj["spec"] = string(noise) })
	}
	return last
}

// accounted sees that each version of the one object was acknowledged, or lies in a gap that was
// reported before what came later.
func accounted(t *testing.T, b *testkit.Broker, from, to resource.Version) (dropped int) {
	t.Helper()
	next, last := number(from), number(to)
	for _, rec := range b.Records() {
		at := number(resource.Version(rec.ResourceVersion))
		switch {
		case !rec.Acked, rec.Op == "synced":
		case rec.Op == "gap":
			var gap struct {
				Reason, From, To string
				Dropped          int
			}
			testkit.OK(t, json.Unmarshal(rec.Data, &gap))
			first, end := number(resource.Version(gap.From)), number(resource.Version(gap.To))
			if gap.Reason != "dropped" || first > next || end < next || gap.Dropped < 1 {
				t.Fatalf("gap %+v where %d should come", gap, next)
			}
			dropped += gap.Dropped
			next = end + 1
		case at > next:
			t.Fatalf("%s comes where %d should", describe(rec), next)
		case at == next:
			next++
		}
	}
	if next != last+1 {
		t.Errorf("the last version reported is %d, want %d", next-1, last)
	}
	return dropped
}

// dropper is a rig with a sink that may fall behind by some 128 KiB, beside one that does not.
func dropper(t *testing.T) (r *rig, behind, live *testkit.Broker) {
	behind, live = calmBroker(t, "behind"), calmBroker(t, "live")
	r = newRig(t, behind, live)
	u := &r.cfg.Units[0]
	u.Memory, u.Spool, u.DropOldest = 64<<10, 128<<10, true
	for i := range r.cfg.Sinks {
		r.cfg.Sinks[i].Publisher = publisher.Config{MaxBytes: 32 << 10}
	}
	return r, behind, live
}

// A full disk drops the oldest changes for the sink that lags.
func TestDropForLaggingSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, behind, live := dropper(t)
		r.start()
		first := r.Create("shop/a", nil)
		r.settle()
		behind.Set(testkit.Unreachable)
		var last resource.Version
		for range 30 {
			last = r.churn("shop/a", 20)
			r.settle()
		}
		if s := r.Status().Informers[0]; s.Dropped["behind"] == 0 || s.Dropped["live"] != 0 || number(resource.Version(s.Watermark)) < number(last)-100 {
			t.Errorf("reading stopped, or nothing was dropped: %+v", s)
		}
		behind.Set(testkit.Healthy)
		for range 30 {
			r.settle()
		}
		_, err := r.end()
		testkit.OK(t, err)
		if n := accounted(t, live, first, last); n != 0 {
			t.Errorf("the sink that was not behind lost %d", n)
		}
		if n := accounted(t, behind, first, last); n == 0 {
			t.Error("nothing was dropped")
		}
	})
}

// Dropped changes are reported after a crash.
func TestDropBeforeCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, behind, live := dropper(t)
		r.start()
		first := r.Create("shop/a", nil)
		r.settle()
		behind.Set(testkit.Unreachable)
		for range 30 {
			r.churn("shop/a", 20)
			r.settle()
		}
		after := r.fs.CrashClone(crashed)
		_, _ = r.end() // the drain ends without it
		r.fs = after
		behind.Set(testkit.Healthy)
		r.start()
		last := r.churn("shop/a", 1)
		for range 30 {
			r.settle()
		}
		_, err := r.end()
		testkit.OK(t, err)
		if n := accounted(t, behind, first, last); n == 0 {
			t.Error("no gap was reported after the crash")
		}
		accounted(t, live, first, last)
	})
}

// A gap is reported when everything around it was dropped.
func TestDropAroundGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, behind, live := dropper(t)
		r.start()
		r.Create("shop/a", nil)
		r.settle()
		behind.Set(testkit.Unreachable)
		flood := func() {
			for range 30 {
				r.churn("shop/a", 20)
				r.settle()
			}
		}
		flood()
		_, _ = r.end() // the drain ends without it
		r.churn("shop/a", 1)
		r.Expire()
		r.start()
		flood()
		_, _ = r.end()
		behind.Set(testkit.Healthy)
		r.start()
		for range 30 {
			r.settle()
		}
		_, err := r.end()
		testkit.OK(t, err)
		if reported := gapsReported(t, live); !slices.Equal(reported, []string{"expired"}) {
			t.Errorf("the sink that was not behind got %q", reported)
		}
		// The second run may have sent what was dropped before it; so that stays as it is.
		if reported := gapsReported(t, behind); !slices.Equal(reported, []string{"dropped", "expired", "dropped"}) {
			t.Errorf("the sink that was behind got %q", reported)
		}
	})
}

// gapsReported are the reasons of the gaps that a broker got.
func gapsReported(t *testing.T, b *testkit.Broker) (reasons []string) {
	t.Helper()
	for _, rec := range b.Records() {
		if !rec.Acked || rec.Op != "gap" {
			continue
		}
		var gap struct{ Reason string }
		testkit.OK(t, json.Unmarshal(rec.Data, &gap))
		reasons = append(reasons, gap.Reason)
	}
	return reasons
}
