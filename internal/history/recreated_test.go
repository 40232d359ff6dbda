package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// The bridge is cut off from 12:00:05 to 12:01:00. Meanwhile web-0 is replaced, once or twice. The
// deletes, and what managedFields do not show, have the time of 12:01.
func TestRecreatedWhileCutOff(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	change := func(op event.Op, version int, uid string, after time.Duration) *event.Event {
		e := podVersion(0, version, 0, noon.Add(after), "")
		e.Op, e.UID, e.ID = op, uid, fmt.Sprint(uid, "/", version)
		e.Type = "dev.kubebridge.resource." + string(op)
		if after >= time.Minute {
			e.TimeSource = event.TimeObserved
		}
		if op == event.Deleted {
			e.Sequence += ".deleted"
		}
		return e
	}
	const s = time.Second
	once := []*event.Event{
		change(event.Added, 48, "a", -time.Hour), change(event.Deleted, 49, "a", 60*s),
		change(event.Added, 50, "b", 10*s), change(event.Updated, 51, "b", 15*s),
	}
	twice := append(slices.Clone(once), change(event.Updated, 52, "b", 61*s),
		change(event.Deleted, 53, "b", 61*s), change(event.Added, 54, "c", 40*s))
	for name, test := range map[string]struct {
		events []*event.Event
		want   map[time.Duration]string
	}{
		"once": {once, map[time.Duration]string{
			5 * s: "48", 10 * s: "50", 12 * s: "50", 30 * s: "51", 60 * s: "51", time.Hour: "51",
		}},
		"twice": {twice, map[time.Duration]string{
			5 * s: "48", 12 * s: "50", 30 * s: "51", 45 * s: "54", 60 * s: "54", 61 * s: "54",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := history.Open(history.Options{Dir: t.TempDir()})
			testkit.OK(t, err)
			t.Cleanup(func() { testkit.OK(t, db.Close()) })
			_, err = db.Writer.Append(t.Context(), test.events)
			testkit.OK(t, err)
			units := db.Questions.Resources.Units()
			o := &query.Object{Unit: units[0], Namespace: "shop", Name: "web-0"}
			for after, want := range test.want {
				p := query.Point{At: noon.Add(after)}
				v, err := db.Questions.Objects.At(o, p)
				testkit.OK(t, err)
				if v == nil || v.Event.ResourceVersion != want {
					t.Errorf("after %v it is %+v, want version %s", after, v, want)
				}
				var state []string
				for v, err := range db.Questions.Objects.State(query.StateQuery{Units: units, Namespace: "shop", At: p}) {
					testkit.OK(t, err)
					state = append(state, v.Event.ResourceVersion)
				}
				if !slices.Equal(state, []string{want}) {
					t.Errorf("after %v the state is %q, want version %s", after, state, want)
				}
			}
		})
	}
}
