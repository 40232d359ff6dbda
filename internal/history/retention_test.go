package history_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// timed are events of which each is some seconds behind the one before.
func timed(t *testing.T, seed uint64, objects, changes int) []event.Event {
	t.Helper()
	events := testkit.Events(t, seed, objects, changes)
	for i := range events {
		events[i].Time = events[0].Observed.Add(time.Duration(i) * 7 * time.Second)
	}
	return events
}

func TestRetention(t *testing.T) {
	events := timed(t, 21, 20, 60)
	known := model{}
	for i := range events {
		known.add(&events[i])
	}
	newest := events[len(events)-1].Time
	t.Run("behind the horizon everything is there, before it the last versions of what lived", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		_, err := db.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		random := rand.New(rand.NewPCG(1, 2))
		for _, age := range []time.Duration{time.Hour, 40 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
			testkit.OK(t, db.Retain(t.Context(), history.Retention{Age: age}, newest))
			horizon, err := db.Horizon()
			testkit.OK(t, err)
			if late := newest.Add(-age).Sub(horizon); late < 0 || late > 5*time.Minute {
				t.Fatalf("the horizon is %v, kept are %v up to %v", horizon, age, newest)
			}
			for _, u := range db.Units() {
				for o, err := range db.Objects(u, "") {
					testkit.OK(t, err)
					all := known.versions("workloads " + o.String())
					kept := slices.IndexFunc(all, func(e *event.Event) bool { return !e.Time.Before(horizon) })
					if kept < 0 {
						kept = len(all)
					}
					if kept > 0 && all[kept-1].Op != event.Deleted {
						kept--
					}
					compareVersions(t, db, &o, all[kept:], time.Time{}, time.Time{})
					for range 20 {
						at := horizon.Add(time.Duration(random.Int64N(int64(newest.Sub(horizon)))))
						got, err := db.At(&o, history.Point{At: at})
						testkit.OK(t, err)
						want := lastUpTo(all, at)
						if want != nil && want.Op == event.Deleted && want.Time.Before(horizon) {
							want = nil // it ended before
						}
						compareVersion(t, got, want)
					}
				}
			}
		}
	})
	t.Run("writers go on, and what they write is right", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		for i := 0; i < len(events); i += 20 {
			n := min(20, len(events)-i)
			_, err := db.Append(t.Context(), pointers(events[i:i+n]))
			testkit.OK(t, err)
			testkit.OK(t, db.Retain(t.Context(), history.Retention{Age: 15 * time.Minute}, events[i+n-1].Time))
		}
		for _, u := range db.Units() {
			for o, err := range db.Objects(u, "") {
				testkit.OK(t, err)
				all := known.versions("workloads " + o.String())
				got, err := db.At(&o, history.Point{})
				testkit.OK(t, err)
				compareVersion(t, got, all[len(all)-1])
			}
		}
	})
	t.Run("a directory that is too large loses its oldest part", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		_, err := db.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		testkit.OK(t, db.Retain(t.Context(), history.Retention{MaxBytes: 1}, newest))
		horizon, err := db.Horizon()
		testkit.OK(t, err)
		if !horizon.After(events[0].Time) || horizon.After(newest.Add(-newest.Sub(events[0].Time)/2)) {
			t.Errorf("the horizon is %v of %v to %v", horizon, events[0].Time, newest)
		}
	})
	t.Run("what is young loses nothing, and has no horizon", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		testkit.OK(t, db.Retain(t.Context(), history.Retention{Age: time.Hour}, newest))
		_, err := db.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		testkit.OK(t, db.Retain(t.Context(), history.Retention{Age: 24 * time.Hour}, newest))
		if horizon, err := db.Horizon(); err != nil || !horizon.IsZero() {
			t.Errorf("the horizon is %v, %v", horizon, err)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		db.RunRetention(ctx, history.Retention{Age: time.Hour}, time.Hour)
	})
}
