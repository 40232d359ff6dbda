package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Requests are found by their claims, once, until retention removes them: those of one cluster, and
// none of another.
func TestRequests(t *testing.T) {
	db, err := Open(Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for range 2 { // the second time is a repeat
		for _, cluster := range []string{"prod", "prod2"} {
			var requests []Request
			for i := range 2500 {
				requests = append(requests, Request{
					Ended: noon.Add(time.Duration(i) * time.Second), Claims: []string{fmt.Sprint("U", i/2), "C\x00\x01"},
					Data: fmt.Appendf(nil, "%s %d", cluster, i),
				})
			}
			testkit.OK(t, db.Requests.Append(t.Context(), cluster, "a", requests, json.RawMessage(`1`)))
		}
	}
	claiming := func(cluster, claim string) (found []string) {
		t.Helper()
		list, err := db.Questions.Requests.Claiming(cluster, claim)
		testkit.OK(t, err)
		for _, data := range list {
			found = append(found, string(data))
		}
		return found
	}
	if got := claiming("prod", "U3"); !slices.Equal(got, []string{"prod 6", "prod 7"}) {
		t.Error(got)
	}
	if got := len(claiming("prod2", "C\x00\x01")); got != 2500 {
		t.Error(got)
	}
	if got := claiming("pro", "U3"); got != nil {
		t.Error(got)
	}
	testkit.OK(t, db.Requests.Append(t.Context(), "prod", "b\x00", nil, json.RawMessage(`2`)))
	sources, err := db.Questions.Requests.Sources("prod")
	testkit.OK(t, err)
	if fmt.Sprint(sources) != "map[a:[49] b\x00:[50]]" {
		t.Error(sources)
	}

	_, err = db.Check(t.Context())
	testkit.OK(t, err)
	testkit.OK(t, db.Maintenance.Retain(t.Context(), Retention{RequestAge: time.Hour}, noon.Add(time.Hour+2000*time.Second)))
	if got := claiming("prod", "U999"); got != nil {
		t.Error(got)
	}
	for _, cluster := range []string{"prod", "prod2"} {
		if got := len(claiming(cluster, "C\x00\x01")); got != 500 {
			t.Error(cluster, got)
		}
	}

	_, err = db.Check(t.Context())
	testkit.OK(t, err)
	it, err := db.shared.pebble.NewIter(nil)
	testkit.OK(t, err)
	it.SeekGE([]byte{keys.SpaceClaim})
	lost := bytes.Clone(it.Key())
	testkit.OK(t, it.Close())
	testkit.OK(t, db.shared.pebble.Delete(lost, nil))
	if _, err = db.Check(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("a claim is lost: %v", err)
	}
}

// Numbers of unsent versions are never used again, also when all were sent; without a sink none is
// kept.
func TestUnsent(t *testing.T) {
	dir := t.TempDir()
	with := func(keeps bool, use func(db *DB)) {
		t.Helper()
		db, err := Open(Options{Dir: dir, KeepsUnsent: keeps})
		testkit.OK(t, err)
		use(db)
		testkit.OK(t, db.Close())
	}
	next := func(db *DB, sink string) (numbers []uint64) {
		t.Helper()
		list, err := db.Unsent.Next(sink, 10)
		testkit.OK(t, err)
		for _, v := range list {
			numbers = append(numbers, v.Number)
			if v.Object.Name != "web" || v.Made.Unix() != 1000 || time.Since(v.Stored) > time.Minute {
				t.Errorf("%+v", v)
			}
		}
		return numbers
	}
	store := func(db *DB, version int) {
		t.Helper()
		e := &event.Event{
			ID: fmt.Sprint("u/", version), Source: "/clusters/a", Informer: "i", Op: event.Updated, Time: time.Unix(1000, 0),
			Type: "dev.kubebridge.resource.updated", Data: []byte(`{}`),
			ObjectAttributes: event.ObjectAttributes{APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: fmt.Sprint(version)},
		}
		_, err := db.Writer.Append(t.Context(), []*event.Event{e})
		testkit.OK(t, err)
	}
	both := []string{"a", "b"}
	with(true, func(db *DB) {
		store(db, 1)
		store(db, 2)
		store(db, 2) // a repeat
		testkit.OK(t, db.Unsent.Sent(t.Context(), "a", 2, both))
		if a, b := next(db, "a"), next(db, "b"); a != nil || !slices.Equal(b, []uint64{1, 2}) {
			t.Error(a, b)
		}
		testkit.OK(t, db.Unsent.Sent(t.Context(), "b", 2, both))
	})
	with(true, func(db *DB) {
		store(db, 3)
		if a, b := next(db, "a"), next(db, "b"); !slices.Equal(a, []uint64{3}) || !slices.Equal(b, a) {
			t.Error(a, b)
		}
	})
	with(false, func(db *DB) { store(db, 4) })
	with(true, func(db *DB) {
		if a := next(db, "a"); a != nil {
			t.Error(a)
		}
	})
}
