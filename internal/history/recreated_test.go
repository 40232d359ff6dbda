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

// etcd was restored: versions 12 to 40 come twice. One that both eras have reached is of the later
// one, in which an object that no list has shown otherwise is what it was at the end of the first.
func TestVersionOfEra(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	change := func(op event.Op, era, version, pod int) *event.Event {
		e := podVersion(pod, version, 0, noon.Add(time.Duration(era*100+version)*time.Second), "")
		e.Op, e.Type = op, "dev.kubebridge.resource."+string(op)
		e.UID = fmt.Sprint("uid-", pod)
		e.ID, e.Sequence = fmt.Sprint(e.UID, "/", version, "/epoch/", era), fmt.Sprintf("%08d.%020d", era, version)
		if op == event.Deleted {
			e.Sequence += ".deleted"
		}
		return e
	}
	gap := change(event.Gap, 1, 15, 0)
	gap.ID, gap.Type, gap.UID, gap.Namespace, gap.Name, gap.PartitionKey = "all/gap/15", "dev.kubebridge.informer.gap", "", "", "", ""
	gap.Data = []byte(`{"reason":"rewound","from":"40","to":"15"}`)
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	_, err = db.Writer.Append(t.Context(), []*event.Event{
		change(event.Added, 0, 10, 0), change(event.Deleted, 0, 30, 0), // deleted before the restore and behind it
		change(event.Added, 0, 11, 1), change(event.Updated, 0, 38, 1),
		change(event.Added, 0, 36, 2), change(event.Added, 0, 13, 3), // undone, and deleted after it
		gap, change(event.Deleted, 1, 15, 2), change(event.Updated, 1, 11, 1), change(event.Updated, 1, 25, 1),
		change(event.Deleted, 1, 25, 3),
	})
	testkit.OK(t, err)
	units := db.Questions.Resources.Units()
	check := func(version uint64, want ...string) {
		t.Helper()
		var state []string
		for v, err := range db.Questions.Objects.State(query.StateQuery{Units: units, Namespace: "shop", At: query.Point{Version: version}}) {
			testkit.OK(t, err)
			state = append(state, v.Event.ResourceVersion)
		}
		if !slices.Equal(state, want) {
			t.Errorf("the state at %d is %q, want %q", version, state, want)
		}
		for pod := range 4 {
			o := &query.Object{Unit: units[0], Namespace: "shop", Name: fmt.Sprint("web-", pod)}
			v, err := db.Questions.Objects.At(o, query.Point{Version: version})
			testkit.OK(t, err)
			if isThere := v != nil && !v.Deleted(); isThere && !slices.Contains(want, v.Event.ResourceVersion) {
				t.Errorf("%s at %d is %s", o, version, v.Event.ResourceVersion)
			}
		}
	}
	for _, version := range []uint64{13, 14, 26, 29} { // only the first era has reached them, as far as is known
		check(version, "10", "11", "13")
	}
	for _, version := range []uint64{39, 40} {
		check(version, "38", "36", "13")
	}
	check(10, "10")
	for _, version := range []uint64{15, 20} {
		check(version, "11", "13")
	}
	for _, version := range []uint64{25, 50} {
		check(version, "25")
	}
	// Now the informer has read up to 35 again, and then etcd is restored once more.
	progress := change(event.Progress, 1, 35, 0)
	progress.ID, progress.Type, progress.UID, progress.Namespace, progress.Name, progress.PartitionKey = "all/progress/35", "dev.kubebridge.informer.progress", "", "", "", ""
	_, err = db.Writer.Append(t.Context(), []*event.Event{progress})
	testkit.OK(t, err)
	check(29, "25")
	check(35, "25")
	check(39, "38", "36", "13")
	again := *gap
	again.ID, again.Sequence, again.ResourceVersion, again.Time = "all/gap/20", fmt.Sprintf("%08d.%020d", 2, 20), "20", noon.Add(220*time.Second)
	again.Data = []byte(`{"reason":"rewound","from":"35","to":"20"}`)
	_, err = db.Writer.Append(t.Context(), []*event.Event{&again, change(event.Updated, 2, 22, 1)})
	testkit.OK(t, err)
	check(22, "22")
	check(30, "25")
	check(39, "38", "36", "13")
	check(16, "11", "13")
}

// A watch reports a delete, which is sent; a crash loses that, and the next list infers it again:
// one id and two sequences, of which the history keeps the first.
func TestDeleteInferredAgain(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	gone := func(uid string, version int, isInferred bool) *event.Event {
		e := podVersion(0, version, 0, noon.Add(time.Duration(version)*time.Second), "")
		e.Op, e.UID, e.ID = event.Deleted, uid, uid+"/deleted"
		e.Type, e.Sequence = "dev.kubebridge.resource.deleted", e.Sequence+".deleted"
		e.Inferred = isInferred
		return e
	}
	added := func(uid string, version int) *event.Event {
		e := podVersion(0, version, 0, noon, "")
		e.Op, e.UID, e.ID, e.Type = event.Added, uid, fmt.Sprint(uid, "/", version), "dev.kubebridge.resource.added"
		return e
	}
	events := []*event.Event{
		added("a", 10), gone("a", 11, false), gone("a", 15, true),
		added("b", 20), gone("b", 25, true), gone("b", 29, true),
	}
	for name, hasRestart := range map[string]bool{"in one batch": false, "with a restart between any two": true} {
		t.Run(name, func(t *testing.T) {
			o := history.Options{Dir: t.TempDir()}
			db, err := history.Open(o)
			testkit.OK(t, err)
			t.Cleanup(func() { testkit.OK(t, db.Close()) })
			repeats := 0
			appendAll := func(events ...*event.Event) {
				done, err := db.Writer.Append(t.Context(), events)
				testkit.OK(t, err)
				repeats += done.Repeats
			}
			if !hasRestart {
				appendAll(events...)
			} else {
				for _, e := range events {
					appendAll(e)
					testkit.OK(t, db.Close())
					db, err = history.Open(o)
					testkit.OK(t, err)
				}
			}
			var versions []string
			object := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "web-0"}
			for v, err := range db.Questions.Objects.Versions(object, time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				versions = append(versions, v.Event.ResourceVersion)
			}
			if want := []string{"10", "11", "20", "25"}; !slices.Equal(versions, want) || repeats != 2 {
				t.Errorf("%q and %d repeats, want %q and 2", versions, repeats, want)
			}
		})
	}
}
