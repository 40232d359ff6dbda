package store_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Cases of client-go's tests that no other test here has. docs/upstream-cases.md is the whole list.

// As TestCache, through doTestStore: what was put is there, until it is replaced or gone; at once,
// and after it was committed.
func TestAnIndexerHoldsWhatWasPut(t *testing.T) {
	for name, commit := range map[string]bool{"in flight": false, "settled": true} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t, "")
			ix := newIndexer(t, db, nil)
			seq := uint64(0)
			put := func(name, version string) {
				seq++
				obj := pod(t, name, version)
				ix.Update(obj.Key(), live(obj, seq))
				if commit {
					settle(t, db, ix, "", map[resource.Key]store.Settled{obj.Key(): live(obj, seq)})
				}
			}
			remove := func(name, version string) {
				seq++
				obj := pod(t, name, version)
				ix.Update(obj.Key(), dead(obj, obj.Version, seq))
				if commit {
					settle(t, db, ix, "", map[resource.Key]store.Settled{obj.Key(): dead(obj, obj.Version, seq)})
				}
			}
			holds := func(key resource.Key, version resource.Version) {
				t.Helper()
				obj, err := ix.Object(key)
				testkit.OK(t, err)
				if obj == nil && version != "" || obj != nil && (obj.Version != version || obj.Key() != key) {
					t.Errorf("%s: %v, want version %q", key, obj, version)
				}
			}
			put("a", "1")
			holds("shop/a", "1")
			put("c", "2")
			holds("shop/c", "2")
			put("c", "3")
			holds("shop/c", "3")
			remove("a", "4")
			holds("shop/a", "")
			put("a", "5")
			put("e", "6")
			holds("shop/b", "")
			want(t, keys(t, ix), "shop/a@5", "shop/c@3", "shop/e@6")
		})
	}
}

// byUsers indexes by the values of an annotation, as the index functions of client-go's tests do.
func byUsers(obj *resource.Object) []string {
	_, rest, _ := strings.Cut(string(obj.Raw), `"users":"`)
	users, _, found := strings.Cut(rest, `"`)
	if !found {
		return nil
	}
	return strings.Split(users, ",")
}

// As TestThreadSafeStoreIndexingFunctionsWithMultipleValues, TestMultiIndexKeys,
// TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex and
// TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex. A commit changes nothing about it.
func TestAnObjectStandsUnderEachOfItsValues(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db, map[string]store.IndexFunc{"users": byUsers})
	steps := []struct {
		name, users string // no users: it is deleted
		want        string // who is under what afterwards
	}{
		{"one", "foo", "foo: one"},
		{"two", "bar", "bar: two; foo: one"},
		{"two", "foo,bar", "bar: two; foo: one two"},
		{"one", "foo,bar", "bar: one two; foo: one two"},
		{"three", "foo,bar,baz", "bar: one three two; baz: three; foo: one three two"},
		{"one", "foo", "bar: three two; baz: three; foo: one three two"},
		{"one", "foo", "bar: three two; baz: three; foo: one three two"},
		// a value twice counts once
		{"two", "bar,bar", "bar: three two; baz: three; foo: one three"},
		{"one", "", "bar: three two; baz: three; foo: three"},
		{"three", "", "bar: two"},
		{"two", "", ""},
		{"two", "bar", "bar: two"},
	}
	for i, step := range steps {
		seq, version := uint64(i+1), resource.Version(string(rune('a'+i)))
		obj := pod(t, step.name, string(version), `,"users":"`+step.users+`"`)
		settled := live(obj, seq)
		if step.users == "" {
			settled = dead(obj, version, seq)
		}
		ix.Update(obj.Key(), settled)
		for _, when := range []string{"at once", "after the commit"} {
			if got := indexed(t, ix); got != step.want {
				t.Errorf("step %d, %s: %q, want %q", i, when, got, step.want)
			}
			settle(t, db, ix, "", map[resource.Key]store.Settled{obj.Key(): settled})
		}
	}
}

// indexed says who is under what.
func indexed(t *testing.T, ix *store.Indexer) string {
	t.Helper()
	var all []string
	for _, value := range ix.IndexValues("users") {
		objects, err := ix.ByIndex("users", value)
		testkit.OK(t, err)
		line := value + ":"
		for _, obj := range objects {
			line += " " + obj.Name
		}
		all = append(all, line)
	}
	return strings.Join(all, "; ")
}
