package history_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestHorizon(t *testing.T) {
	events := timed(t, 23, 20, 60)
	db := openDir(t, t.TempDir())
	_, err := db.Writer.Append(t.Context(), pointers(events))
	testkit.OK(t, err)
	newest := events[len(events)-1].Time
	wanted := query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: "*", At: query.Point{Version: 1}}
	t.Run("nothing is refused before anything was removed", func(t *testing.T) { testkit.OK(t, db.Questions.Coverage.CheckState(wanted)) })
	testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: 30 * time.Minute}, newest))
	horizon, err := db.Questions.Coverage.Horizon()
	testkit.OK(t, err)
	t.Run("a state of a version is right, or refused with the horizon", func(t *testing.T) {
		want := map[string]string{} // the state
		refused, answered := 0, 0
		for i := range events {
			e := &events[i]
			if e.AboutInformer() {
				continue
			}
			if want[e.UID] = e.ResourceVersion; e.Op == event.Deleted {
				delete(want, e.UID)
			}
			version, err := strconv.ParseUint(e.ResourceVersion, 10, 64)
			testkit.OK(t, err)
			wanted.At = query.Point{Version: version}
			if err := db.Questions.Coverage.CheckState(wanted); err != nil {
				refused++
				if !e.Time.Before(horizon) {
					t.Fatalf("version %d of %v is refused, the horizon is %v", version, e.Time, horizon)
				}
				if !errors.Is(err, query.ErrNotKnown) || !strings.Contains(err.Error(), query.ShowTime(horizon)) {
					t.Fatal(err)
				}
				continue
			}
			answered++
			got := map[string]string{}
			for v, err := range db.Questions.Objects.State(wanted) {
				testkit.OK(t, err)
				got[v.Event.UID] = v.Event.ResourceVersion
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("at version %d of %v: %v, want %v", version, e.Time, got, want)
			}
		}
		if refused == 0 || answered == 0 {
			t.Errorf("%d refused, %d answered", refused, answered)
		}
	})
	t.Run("a time is refused before it, and not from it on", func(t *testing.T) {
		wanted.At = query.Point{At: horizon}
		testkit.OK(t, db.Questions.Coverage.CheckState(wanted))
		wanted.At = query.Point{At: horizon.Add(-time.Nanosecond)}
		if err := db.Questions.Coverage.CheckState(wanted); !errors.Is(err, query.ErrNotKnown) {
			t.Error(err)
		}
	})
	t.Run("so is an object, with the horizon", func(t *testing.T) {
		e := &events[0]
		o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: e.Namespace, Name: e.Name}
		_, err := db.Questions.Objects.Existing(o, query.Point{At: horizon.Add(-time.Second)})
		want := "this history is kept from " + query.ShowTime(horizon) + " on (retention)"
		if !errors.Is(err, query.ErrNotKnown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
}
