package refused_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher/refused"
)

// kept keeps events one second after the other, and returns what the folder has.
func kept(t *testing.T, events ...*event.Event) (dir string, entries []refused.Entry) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "undelivered")
	f := refused.New(refused.Config{Dir: dir, MaxBytes: 1 << 20})
	for i, e := range events {
		why := refused.Refusal{Sink: "lake", Reason: "too large", Kept: time.Unix(1e9+int64(i), 0)}
		if err := f.Keep(e, why); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := refused.List(dir)
	if err != nil || len(entries) != len(events) {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	return dir, entries
}

func TestParse(t *testing.T) {
	t.Run("an event is read back as it was, byte for byte", func(t *testing.T) {
		want := newEvent("u/1", `{"a": "<b>&",  "n": 1.0}`)
		want.Time = want.Time.UTC()
		want.Op, want.Group, want.Version, want.APIVersion = event.Added, "apps", "v1", "apps/v1"
		want.Informer, want.PartitionKey, want.DataType = "all", "deployments.apps/shop/web", event.ContentType
		want.Cluster, want.Part, want.CompactionKey, want.Run = "c", 3, "informers/all", "/run"
		dir, entries := kept(t, want)
		read, err := refused.Read(dir, "lake", entries[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []refused.Entry{entries[0], read} {
			if got, err := e.Parse(); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
			}
		}
	})
	t.Run("an event that could not be made is not what happened", func(t *testing.T) {
		e := newEvent("u/1", "")
		e.Err = errors.New("a panic")
		_, entries := kept(t, e)
		if _, err := entries[0].Parse(); !errors.Is(err, refused.ErrIncomplete) {
			t.Error(err)
		}
	})
	t.Run("there is no other event than those in the folder", func(t *testing.T) {
		dir, _ := kept(t, newEvent("u/1", "{}"))
		for _, id := range []string{"ffff", "../../x"} {
			if _, err := refused.Read(dir, "lake", id); err == nil {
				t.Errorf("%s was read", id)
			}
		}
	})
}

func TestOrder(t *testing.T) {
	of := func(key, sequence string) *event.Event {
		e := newEvent(key+"/"+sequence, "{}")
		e.PartitionKey, e.Sequence = key, sequence
		return e
	}
	// The clock went back between the two events of a.
	_, entries := kept(t, of("b", "5"), of("a", "2"), of("b", "6"), of("a", "1"))
	refused.Order(entries)
	var got []string
	for i := range entries {
		e, err := entries[i].Parse()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID)
	}
	if want := []string{"b/5", "b/6", "a/1", "a/2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
