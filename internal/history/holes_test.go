package history_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A gap is one from the last version that was seen up to the list that ends it, whenever the list
// came. Versions of this test are seconds.
func TestGap(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	change := func(name string, op event.Op, version, second int) *event.Event {
		e := podVersion(0, version, 0, at.Add(time.Duration(second)*time.Second), "")
		e.Op, e.Name, e.UID, e.PartitionKey, e.ID = op, name, name, "pods/shop/"+name, name+fmt.Sprint(version)
		e.Type = "dev.kubebridge.resource." + string(op)
		if op == event.Deleted {
			e.Sequence += ".deleted"
		}
		if e.Inferred = second > 3000; e.Inferred && op == event.Deleted {
			e.ResourceVersion = "30" // the last one that was known
		}
		return e
	}
	mark := func(op event.Op, version, second int, data string) *event.Event {
		return &event.Event{
			ID: fmt.Sprint("all/", op, "/", version), Source: "/clusters/prod", Type: "dev.kubebridge.informer." + string(op),
			Op: op, Informer: "all", ObjectAttributes: event.ObjectAttributes{
				Resource: "pods", Kind: "Pod", ResourceVersion: fmt.Sprint(version),
			}, Time: at.Add(time.Duration(second) * time.Second),
			Data: []byte(data),
		}
	}
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	_, err = db.Writer.Append(t.Context(), []*event.Event{
		mark(event.Synced, 5, 5, `{}`), change("stays", event.Added, 10, 10), change("changes", event.Added, 20, 20),
		change("goes", event.Added, 30, 30), change("gone", event.Added, 40, 40), change("gone", event.Deleted, 50, 50),
		change("gone", event.Added, 60, 60), change("gone", event.Deleted, 600, 600),
		change("ahead", event.Added, 605, 605), change("read", event.Added, 610, 610),
		mark(event.Gap, 3000, 3001, `{"reason":"expired","from":"600","to":"3000"}`),
		change("changes", event.Updated, 2000, 3002), change("goes", event.Deleted, 3000, 3003), change("comes", event.Added, 2500, 3004),
		change("ahead", event.Updated, 2600, 3004), mark(event.Synced, 3000, 3005, `{}`), change("later", event.Added, 4000, 2999),
		change("read", event.Deleted, 3010, 3010),
	})
	testkit.OK(t, err)
	const unknown = "unknown"
	answer := func(t *testing.T, name string, p query.Point) string {
		t.Helper()
		o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: name}
		v, err := db.Questions.Objects.Existing(o, p)
		switch {
		case errors.Is(err, query.ErrNotKnown):
			return unknown
		case errors.Is(err, query.ErrDidNotExist):
			return "none"
		}
		testkit.OK(t, err)
		holes, err := db.Questions.Coverage.Uncertain(o, v, p)
		testkit.OK(t, err)
		if len(holes) > 0 {
			return v.Event.ResourceVersion + " or another"
		}
		return v.Event.ResourceVersion
	}
	for _, test := range []struct {
		name    string
		version int
		want    string
	}{
		{"stays", 600, "10"},
		{"stays", 601, "10 or another"},
		{"stays", 2999, "10 or another"},
		{"stays", 3000, "10"},
		{"changes", 600, "20"},
		{"changes", 1999, "20 or another"},
		{"changes", 2000, "2000"},
		{"changes", 3000, "2000"},
		{"ahead", 700, "605 or another"},
		{"ahead", 2600, "2600"},          // sent, and not committed before the gap
		{"read", 2000, "610 or another"}, // read before the gap, and gone in a later list
		{"goes", 600, "30"},
		{"goes", 1000, "30 or another"},
		{"goes", 3000, "none"},
		{"gone", 55, "none"},
		{"gone", 600, "none"},
		{"gone", 1000, unknown},
		{"gone", 3000, "none"},
		{"comes", 600, unknown},
		{"comes", 2499, unknown},
		{"comes", 2500, "2500"},
		{"comes", 3000, "2500"},
		{"later", 1000, unknown},
		{"later", 3500, "none"},
	} {
		if got := answer(t, test.name, query.Point{Version: uint64(test.version)}); got != test.want {
			t.Errorf("%s at version %d: %s, want %s", test.name, test.version, got, test.want)
		}
	}
	for _, test := range []struct {
		name   string
		second int
		want   string
	}{
		{"stays", 500, "10"},
		{"stays", 700, "10 or another"},
		{"stays", 3000, "10 or another"},
		{"stays", 3005, "10"},
		{"gone", 55, "none"},
		{"gone", 1000, unknown},
		{"gone", 3006, "none"},
		{"goes", 1000, "30 or another"},
		{"goes", 3006, "none"},
	} {
		if got := answer(t, test.name, query.Point{At: at.Add(time.Duration(test.second) * time.Second)}); got != test.want {
			t.Errorf("%s at %d s: %s, want %s", test.name, test.second, got, test.want)
		}
	}
	t.Run("a time between the last version that was seen and the list is in the gap", func(t *testing.T) {
		o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "stays"}
		for second, want := range map[int]int{500: 0, 700: 1, 2000: 1} {
			from := at.Add(time.Duration(second) * time.Second)
			if holes, err := db.Questions.Coverage.Holes(o, from, from.Add(time.Second)); err != nil || len(holes) != want {
				t.Errorf("at %d s: %d holes, %v; want %d", second, len(holes), err, want)
			}
		}
	})
}

// An object whose namespace comes into the selection again comes with the version that it had,
// which may be one of before it left.
func TestEnteredAgain(t *testing.T) {
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	var events []*event.Event
	for i, v := range []struct {
		op       event.Op
		version  int
		sequence string
	}{
		{event.Added, 7, "00000000.00000000000000000007"},
		{event.Deleted, 7, "00000000.00000000000000000020.deleted"},
		{event.Added, 7, "00000000.entered.00000000000000000030.00000000000000000007"},
		{event.Updated, 45, "00000000.entered.00000000000000000030.00000000000000000045"},
		{event.Deleted, 45, "00000000.entered.00000000000000000030.00000000000000000050.deleted"},
		{event.Added, 45, "00000000.entered.00000000000000000060.00000000000000000045"},
	} {
		e := podVersion(0, v.version, 0, at.Add(time.Duration(i)*time.Minute), "")
		e.Op, e.Type, e.Sequence, e.ID = v.op, "dev.kubebridge.resource."+string(v.op), v.sequence, v.sequence
		events = append(events, e)
	}
	_, err = db.Writer.Append(t.Context(), events)
	testkit.OK(t, err)
	o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "web-0"}
	for version, want := range map[uint64]int{6: -1, 7: 0, 19: 0, 20: 1, 29: 1, 30: 2, 44: 2, 45: 3, 49: 3, 50: 4, 59: 4, 60: 5, 99: 5} {
		v, err := db.Questions.Objects.At(o, query.Point{Version: version})
		testkit.OK(t, err)
		switch {
		case want < 0 && v != nil:
			t.Errorf("at %d: %s, want nothing", version, v.Event.Sequence)
		case want >= 0 && (v == nil || v.Event.Sequence != events[want].Sequence || v.Event.ResourceVersion != events[want].ResourceVersion):
			t.Errorf("at %d: %+v, want %s", version, v, events[want].Sequence)
		}
	}
}

// Whoever may write to a stream may say what he likes in an event.
func TestForgedEra(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	gap := &event.Event{
		ID: "all/gap/3000", Source: "/clusters/prod", Type: "dev.kubebridge.informer.gap",
		Op: event.Gap, Informer: "all", ObjectAttributes: event.ObjectAttributes{
			Resource: "pods", Kind: "Pod", ResourceVersion: "3000",
		}, Time: at.Add(time.Hour),
		Sequence: "4294967295.00000000000000003000",
		Data:     []byte(`{"reason":"expired","from":"600","to":"3000"}`),
	}
	_, err = db.Writer.Append(t.Context(), []*event.Event{podVersion(0, 10, 0, at, ""), gap})
	testkit.OK(t, err)
	holes, err := db.Questions.Coverage.HolesOf(db.Questions.Resources.Units(), time.Time{}, time.Time{})
	testkit.OK(t, err)
	if len(holes) != 1 || !holes[0].Since.Equal(at) {
		t.Errorf("%d holes, want one since %v: %+v", len(holes), at, holes)
	}
}
