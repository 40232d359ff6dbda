package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestState(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	change := func(informer, name string, op event.Op, version int) *event.Event {
		e := podVersion(0, version, 0, at.Add(time.Duration(version)*time.Second), "")
		e.Informer, e.Op, e.Name, e.UID, e.PartitionKey = informer, op, name, name, "pods/shop/"+name
		e.Type = "dev.kubebridge.resource." + string(op)
		if op == event.Deleted {
			e.Sequence += ".deleted"
		}
		return e
	}
	mark := func(informer, id string, op event.Op, version int, data string) *event.Event {
		return &event.Event{
			ID: informer + "/" + id, Source: "/clusters/prod", Type: "dev.kubebridge.informer." + string(op), Op: op, Informer: informer,
			ObjectAttributes: event.ObjectAttributes{Resource: "pods", Kind: "Pod", ResourceVersion: fmt.Sprint(version)}, Time: at.Add(time.Duration(version) * time.Second), Data: []byte(data),
		}
	}
	open := func(t *testing.T, events ...*event.Event) *history.DB {
		db, err := history.Open(history.Options{Dir: t.TempDir()})
		testkit.OK(t, err)
		t.Cleanup(func() { testkit.OK(t, db.Close()) })
		_, err = db.Writer.Append(t.Context(), events)
		testkit.OK(t, err)
		return db
	}
	names := func(t *testing.T, db *history.DB, q query.StateQuery) (list []string) {
		t.Helper()
		q.Units = db.Questions.Resources.Units()
		for v, err := range db.Questions.Objects.State(q) {
			testkit.OK(t, err)
			list = append(list, v.Unit.Informer+" "+v.Event.Name+" "+v.Event.ResourceVersion)
		}
		return list
	}
	t.Run("an object of several informers is given once, as the newest of them has it", func(t *testing.T) {
		db := open(t,
			change("blue", "a", event.Added, 10), change("blue", "a", event.Deleted, 20), change("green", "a", event.Added, 20),
			change("blue", "b", event.Added, 11), change("green", "b", event.Added, 11), change("green", "b", event.Updated, 31),
			change("green", "c", event.Added, 12), change("blue", "d", event.Added, 13), change("blue", "d", event.Deleted, 14),
		)
		for p, want := range map[query.Point][]string{
			{}:                                {"green a 20", "green b 31", "green c 12"},
			{At: at.Add(13 * time.Second)}:    {"blue a 10", "blue b 11", "green c 12", "blue d 13"},
			{Version: 20}:                     {"green a 20", "blue b 11", "green c 12"},
			{Version: 1}:                      nil,
			{At: at.Add(-1000 * time.Second)}: nil,
		} {
			if got := names(t, db, query.StateQuery{Namespace: "shop", At: p}); !slices.Equal(got, want) {
				t.Errorf("at %v: %q, want %q", p, got, want)
			}
		}
		got := names(t, db, query.StateQuery{Namespace: "shop", Behind: &query.Object{Namespace: "shop", Name: "a"}})
		if want := []string{"green b 31", "green c 12"}; !slices.Equal(got, want) {
			t.Errorf("behind a: %q, want %q", got, want)
		}
	})
	t.Run("the end of an object that a restore has undone hides none of before the restore", func(t *testing.T) {
		restored := func(uid string, op event.Op, version int) *event.Event {
			e := change("blue", "a", op, version)
			e.UID, e.Inferred, e.ID = uid, true, fmt.Sprint(uid, op, version)
			e.Sequence = strings.Replace(e.Sequence, "00000000.", "00000001.", 1)
			e.Time = at.Add(time.Hour)
			return e
		}
		// Another object had the name when etcd was restored. Its end lies right before the version
		// that the list has of the first one, in the new epoch.
		diverged := change("blue", "a", event.Added, 60)
		diverged.UID = "other"
		db := open(t,
			change("blue", "a", event.Added, 10), change("blue", "a", event.Updated, 40), change("blue", "a", event.Deleted, 50), diverged,
			restored("other", event.Deleted, 39), restored("a", event.Added, 40),
			change("blue", "b", event.Added, 11), change("blue", "b", event.Updated, 41),
		)
		for _, version := range []uint64{38, 39} {
			got := names(t, db, query.StateQuery{Namespace: "shop", At: query.Point{Version: version}})
			if want := []string{"blue a 10", "blue b 11"}; !slices.Equal(got, want) {
				t.Errorf("at version %d: %q, want %q", version, got, want)
			}
		}
		got := names(t, db, query.StateQuery{Namespace: "shop", At: query.Point{Version: 40}})
		if want := []string{"blue a 40", "blue b 11"}; !slices.Equal(got, want) {
			t.Errorf("at version 40: %q, want %q", got, want)
		}
	})
	t.Run("an object that was deleted and made again after a restore was gone between", func(t *testing.T) {
		later := func(op event.Op, version int) *event.Event {
			e := change("blue", "a", op, version)
			e.Sequence = strings.Replace(e.Sequence, "00000000.", "00000001.", 1)
			return e
		}
		db := open(t, change("blue", "a", event.Added, 10), later(event.Deleted, 50), later(event.Added, 51))
		if got := names(t, db, query.StateQuery{Namespace: "shop", At: query.Point{Version: 50}}); len(got) > 0 {
			t.Errorf("%q, want none", got)
		}
	})
	uncertain := func(t *testing.T, db *history.DB, p query.Point) string {
		t.Helper()
		holes, unlisted, err := db.Questions.Coverage.UncertainState(query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: "shop", At: p})
		testkit.OK(t, err)
		var all []string
		for _, m := range holes {
			all = append(all, m.Reason)
		}
		for _, u := range unlisted {
			all = append(all, "unlisted until "+u.Until.UTC().Format("05"))
		}
		return strings.Join(all, ", ")
	}
	events := []*event.Event{
		change("blue", "a", event.Added, 10), mark("blue", "synced/12", event.Synced, 12, `{}`),
		mark("blue", "gap/20", event.Gap, 20, `{"reason":"expired","from":"12","to":"20"}`),
		mark("blue", "synced/22", event.Synced, 22, `{}`),
		mark("blue", "gap/30", event.Gap, 30, `{"reason":"dropped","from":"29","to":"30"}`),
		change("blue", "a", event.Updated, 40),
	}
	t.Run("holes that no list healed by then are named, and lists that had not ended", func(t *testing.T) {
		db := open(t, events...)
		for second, want := range map[int]string{11: "unlisted until 12", 12: "", 15: "expired", 20: "expired", 22: "", 30: "dropped", 50: "dropped"} {
			if got := uncertain(t, db, query.Point{At: at.Add(time.Duration(second) * time.Second)}); got != want {
				t.Errorf("at %d s: %q, want %q", second, got, want)
			}
			if got := uncertain(t, db, query.Point{Version: uint64(second)}); got != want {
				t.Errorf("at version %d: %q, want %q", second, got, want)
			}
		}
	})
	t.Run("retention keeps that a list had ended", func(t *testing.T) {
		db := open(t, events[:4]...)
		testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: time.Hour}, at.Add(3*time.Hour)))
		if got := uncertain(t, db, query.Point{At: at.Add(3 * time.Hour)}); got != "" {
			t.Errorf("%q", got)
		}
		marks := 0
		for _, err := range db.Questions.Coverage.Notices(db.Questions.Resources.Units()[0], time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			marks++
		}
		if marks != 1 {
			t.Errorf("%d marks are left, want the last list's", marks)
		}
	})
	t.Run("retention keeps what the last list has not healed", func(t *testing.T) {
		unreadable := func(name string, version int) *event.Event {
			e := mark("blue", "quarantined/"+name+fmt.Sprint(version), event.Quarantined, version, `{}`)
			e.PartitionKey = "pods/shop/" + name
			return e
		}
		dropped := mark("blue", "gap/25", event.Gap, 25, `{"reason":"dropped","from":"24","to":"25"}`)
		db := open(t, append(events[:4:4], events[4], dropped, unreadable("a", 31), change("blue", "b", event.Added, 32),
			unreadable("b", 33), unreadable("b", 34), change("blue", "c", event.Added, 35), unreadable("c", 36),
			change("blue", "c", event.Deleted, 37), mark("blue", "synced/40", event.Synced, 40, `{}`),
			mark("blue", "gap/50", event.Gap, 50, `{"reason":"expired","from":"40","to":"50"}`))...)
		end := at.Add(3 * time.Hour)
		for _, age := range []time.Duration{2 * time.Hour, time.Hour} {
			testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: age}, end))
			var marks []string
			for m, err := range db.Questions.Coverage.Notices(db.Questions.Resources.Units()[0], time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				marks = append(marks, m.Event.ID)
			}
			want := []string{
				"blue/gap/30", "blue/quarantined/a31", "blue/quarantined/b34", "blue/synced/40", "blue/gap/50",
			}
			if !slices.Equal(marks, want) {
				t.Errorf("left are %q, want %q", marks, want)
			}
		}
		if got := uncertain(t, db, query.Point{At: end}); got != "dropped, , , expired" {
			t.Errorf("%q", got)
		}
		o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "a"}
		v, err := db.Questions.Objects.Existing(o, query.Point{At: end})
		testkit.OK(t, err)
		if holes, err := db.Questions.Coverage.Uncertain(o, v, query.Point{At: end}); err != nil || len(holes) != 3 {
			t.Errorf("%d holes, %v; want the drop, the version and the gap", len(holes), err)
		}
	})
	t.Run("memory does not grow with the answer", func(t *testing.T) {
		db, err := history.Open(history.Options{Dir: t.TempDir(), LastVersionsBytes: 1, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
		testkit.OK(t, err)
		defer db.Close()
		const objects, size = 1500, 20_000
		for i := range objects {
			_, err := db.Writer.Append(t.Context(), []*event.Event{podVersion(i, 1000+i, 0, at, strings.Repeat(fmt.Sprintf(`{"%d":0},`, i), size/10))})
			testkit.OK(t, err)
		}
		begun, most, n := testkit.Heap(), int64(0), 0
		for _, err := range db.Questions.Objects.State(query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: "*"}) {
			testkit.OK(t, err)
			if n++; n%300 == 0 {
				most = max(most, testkit.Heap())
			}
		}
		if n != objects || most > begun+objects*size/4 {
			t.Errorf("%d objects; the heap grew from %d to %d", n, begun, most)
		}
	})
}

func TestCompleteUntil(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	progress := func(resource, namespace string, minute int) *event.Event {
		return &event.Event{
			ID: "all/" + resource + "/" + namespace + "/progress/" + fmt.Sprint(minute), Source: "/clusters/prod", Op: event.Progress,
			Type: "dev.kubebridge.informer.progress", Informer: "all", ObjectAttributes: event.ObjectAttributes{
				Resource: resource, Kind: "Pod", Namespace: namespace,
				ResourceVersion: fmt.Sprint(100 + minute),
			},
			Time: at.Add(time.Duration(minute) * time.Minute), Data: []byte(`{}`),
		}
	}
	inPartition := func(n int, e *event.Event) *event.Event {
		e.ID += "/partition/" + fmt.Sprint(n)
		return e
	}
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	_, err = db.Writer.Append(t.Context(), []*event.Event{
		progress("pods", "", 1), progress("pods", "", 9), progress("services", "shop", 5), progress("services", "blue", 7), podVersion(0, 5, 0, at, ""),
		inPartition(0, progress("leases", "", 3)), inPartition(1, progress("leases", "", 3)), inPartition(1, progress("leases", "", 8)),
		{ID: "s", Source: "/clusters/prod", Op: event.Synced, Type: "dev.kubebridge.informer.synced", Informer: "all", ObjectAttributes: event.ObjectAttributes{Resource: "nodes"}, Time: at},
	})
	testkit.OK(t, err)
	units := map[string]*record.Unit{}
	for _, u := range db.Questions.Resources.Units() {
		units[u.Resource] = u
	}
	for _, test := range []struct {
		resources []string
		want      time.Time
	}{
		{[]string{"pods"}, at.Add(9 * time.Minute)},
		{[]string{"pods", "services"}, at.Add(5 * time.Minute)},
		{[]string{"pods", "nodes"}, time.Time{}},
		{[]string{"leases"}, at.Add(3 * time.Minute)}, // of a topic, one partition of which is behind
	} {
		var list []*record.Unit
		for _, r := range test.resources {
			list = append(list, units[r])
		}
		if got, err := db.Questions.Coverage.CompleteUntil(list); err != nil || !got.Equal(test.want) {
			t.Errorf("%v: %v, %v; want %v", test.resources, got, err, test.want)
		}
	}
}
