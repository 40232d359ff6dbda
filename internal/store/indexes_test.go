package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// byUsers indexes pods by the users in spec.users, separated by commas.
func byUsers(definition string) store.Index {
	return store.Index{Name: "byUser", Definition: definition, Values: func(dst []string, obj *resource.Object) []string {
		var pod struct{ Spec struct{ Users string } }
		if err := json.Unmarshal(obj.Raw, &pod); err != nil || pod.Spec.Users == "" {
			return dst
		}
		return append(dst, strings.Split(pod.Spec.Users, ",")...)
	}}
}

// indexed is an Indexer with indexes, on a disk that may crash.
type indexed struct {
	t       *testing.T
	fs      *vfs.MemFS
	db      *store.DB
	ix      *store.Indexer
	indexes []store.Index
	seq     uint64
	pending map[resource.Key]store.NewState // settled, and not committed
	between func(*indexed)                  // what happens behind each step
}

func newIndexed(t *testing.T, between func(*indexed), indexes ...store.Index) *indexed {
	x := &indexed{
		t: t, fs: vfs.NewCrashableMem(), indexes: indexes, between: between,
		pending: map[resource.Key]store.NewState{},
	}
	x.open()
	t.Cleanup(func() { _ = x.db.Close() })
	return x
}

func (x *indexed) open() {
	x.t.Helper()
	var err error
	x.db, err = store.Open(statedb.Options{Dir: "state", FS: x.fs})
	testkit.OK(x.t, err)
	x.ix, err = x.db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Indexes: x.indexes})
	testkit.OK(x.t, err)
	for key, s := range x.pending { // the watch brings them again
		x.ix.Update(key, s)
	}
}

func (x *indexed) reopen(indexes ...store.Index) {
	x.t.Helper()
	testkit.OK(x.t, x.db.Close())
	x.indexes = indexes
	x.open()
}

func (x *indexed) crash() {
	x.t.Helper()
	after := x.fs.CrashClone(vfs.CrashCloneCfg{})
	testkit.OK(x.t, x.db.Close())
	x.fs = after
	x.open()
}

func (x *indexed) commit() {
	x.t.Helper()
	batch := x.db.NewBatch()
	batch.BuildIndexes(x.ix)
	for key, s := range x.pending {
		batch.Settle(x.ix, key, s)
	}
	testkit.OK(x.t, batch.Commit())
	x.ix.Forget(x.pending)
	clear(x.pending)
}

// put makes a state of a pod the newest one.
func (x *indexed) put(name, users string) {
	x.t.Helper()
	x.seq++
	obj := pod(x.t, name, fmt.Sprint(x.seq), fmt.Sprintf(`,"spec":{"users":%q}`, users))
	x.pending[obj.Key()] = live(obj, x.seq)
	x.ix.Update(obj.Key(), x.pending[obj.Key()])
	x.between(x)
}

func (x *indexed) remove(name string) {
	x.t.Helper()
	x.seq++
	obj := pod(x.t, name, fmt.Sprint(x.seq))
	x.pending[obj.Key()] = dead(obj, obj.Version, x.seq)
	x.ix.Update(obj.Key(), x.pending[obj.Key()])
	x.between(x)
}

// has checks which pods have a user.
func (x *indexed) has(user string, names ...string) {
	x.t.Helper()
	testkit.Want(x.t, namesOf(x.t, x.ix, "byUser", user), names...)
}

// values checks which values there are.
func (x *indexed) values(expected ...string) {
	x.t.Helper()
	var values []string
	for value, err := range x.ix.Indexes().ListIndexFuncValues("byUser") {
		testkit.OK(x.t, err)
		values = append(values, value)
	}
	slices.Sort(values)
	testkit.Want(x.t, values, expected...)
}

func namesOf(t *testing.T, ix *store.Indexer, name, value string) (names []string) {
	t.Helper()
	for key, err := range ix.Indexes().IndexKeys(name, value) {
		testkit.OK(t, err)
		_, name := key.Split()
		names = append(names, name)
	}
	return names
}

// everyWay runs a case with each thing that may happen between two steps.
func everyWay(t *testing.T, run func(t *testing.T, x *indexed)) {
	for name, between := range map[string]func(*indexed){
		"in flight": func(*indexed) {},
		"settled":   (*indexed).commit,
		"reopened": func(x *indexed) {
			x.commit()
			x.reopen(x.indexes...)
		},
		"crashed": func(x *indexed) {
			x.commit()
			x.crash()
		},
		"crashed before the commit": (*indexed).crash,
		"every other one is settled": func(x *indexed) {
			if x.seq%2 == 0 {
				x.commit()
			}
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, newIndexed(t, between, byUsers("1"))) })
	}
}

// As TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex and
// TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex.
func TestIndexOfDeleted(t *testing.T) {
	everyWay(t, func(t *testing.T, x *indexed) {
		x.put("retain", "ernie")
		x.put("delete", "ernie,bert")
		x.has("ernie", "delete", "retain")
		x.values("bert", "ernie")
		x.remove("delete")
		x.has("ernie", "retain")
		x.has("bert")
		x.values("ernie")
		x.remove("retain")
		x.has("ernie")
		x.values()
		x.put("delete", "bert") // again
		x.has("bert", "delete")
	})
}

// As TestThreadSafeStoreIndexingFunctionsWithMultipleValues.
func TestIndexOfSeveralValues(t *testing.T) {
	everyWay(t, func(t *testing.T, x *indexed) {
		is := func(foo, bar, baz string) {
			t.Helper()
			x.has("foo", strings.Fields(foo)...)
			x.has("bar", strings.Fields(bar)...)
			x.has("baz", strings.Fields(baz)...)
		}
		x.put("key1", "foo")
		x.put("key2", "bar")
		is("key1", "key2", "")
		x.put("key2", "foo,bar")
		is("key1 key2", "key2", "")
		x.put("key1", "foo,bar")
		is("key1 key2", "key1 key2", "")
		x.put("key3", "foo,bar,baz")
		is("key1 key2 key3", "key1 key2 key3", "key3")
		x.put("key1", "foo")
		is("key1 key2 key3", "key2 key3", "key3")
		x.put("key2", "bar")
		is("key1 key3", "key2 key3", "key3")
		x.remove("key1")
		is("key3", "key2 key3", "key3")
		x.remove("key3")
		is("", "key2", "")
	})
}

// As TestGetIndexFuncValues and TestMultiIndexKeys.
func TestIndexOfUsers(t *testing.T) {
	everyWay(t, func(t *testing.T, x *indexed) {
		x.put("one", "ernie,bert")
		x.put("two", "bert,oscar")
		x.put("tre", "ernie,elmo")
		x.has("ernie", "one", "tre")
		x.has("bert", "one", "two")
		x.has("elmo", "tre")
		x.has("oscar", "two")
		x.has("elmo1")
		x.has("elm")
		x.values("bert", "elmo", "ernie", "oscar")
		x.remove("tre")
		x.has("ernie", "one")
		x.has("elmo")
		x.put("two", "oscar")
		x.has("bert", "one")
		x.values("bert", "ernie", "oscar")
		x.put("two", "") // has no value
		x.values("bert", "ernie")
	})
}

// As TestCache: an object is found by those that share a value with it.
func TestIndexOfObject(t *testing.T) {
	everyWay(t, func(t *testing.T, x *indexed) {
		x.put("one", "ernie,bert")
		x.put("two", "bert,ernie,oscar")
		x.put("tre", "oscar")
		like := pod(t, "like", "1", `,"spec":{"users":"ernie,bert"}`)
		var names []string
		for item, err := range x.ix.Indexes().Index("byUser", like) {
			testkit.OK(t, err)
			obj, err := item.Object()
			testkit.OK(t, err)
			if obj.Version != item.Version {
				t.Errorf("%s has version %s of %s", item.Key, obj.Version, item.Version)
			}
			names = append(names, obj.Name)
		}
		testkit.Want(t, names, "one", "two")
	})
}

func TestUnknownIndex(t *testing.T) {
	x := newIndexed(t, func(*indexed) {}, byUsers("1"))
	for what, err := range map[string]error{
		"ByIndex": lastError(x.ix.Indexes().ByIndex("other", "")), "IndexKeys": lastError(x.ix.Indexes().IndexKeys("other", "")),
		"Index":               lastError(x.ix.Indexes().Index("other", pod(t, "a", "1"))),
		"ListIndexFuncValues": lastError(x.ix.Indexes().ListIndexFuncValues("other")),
	} {
		if !errors.Is(err, store.ErrNoIndex) || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := x.ix.Indexes().AddIndexers(byUsers("1")); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("one was added twice: %v", err)
	}
	testkit.OK(t, x.ix.Indexes().AddIndexers(store.ByOwner(), store.ByNode()))
	testkit.Want(t, x.ix.Indexes().GetIndexers(), "byUser", "owner", "node")
}

func lastError[T any](seq func(func(T, error) bool)) (last error) {
	for _, err := range seq {
		last = err
	}
	return last
}

// An index that is new is built in pieces, and says so until it is complete.
func TestIndexIsBuilt(t *testing.T) {
	for name, before := range map[string][]store.Index{
		"added": nil, "beside another": {store.ByNode()}, "of another definition": {byUsers("0")},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndexed(t, func(*indexed) {}, before...)
			const n = 2500
			for i := range n {
				x.put(fmt.Sprintf("p%04d", i), []string{"ernie", "bert"}[i%2])
			}
			x.commit()
			x.reopen(append(slices.Clone(before[:0]), store.ByNode(), byUsers("1"))...)
			has := func(least, most int, complete bool) {
				t.Helper()
				found, err := 0, error(nil)
				for _, err = range x.ix.Indexes().ByIndex("byUser", "bert") {
					if err == nil {
						found++
					}
				}
				if found < least || found > most || errors.Is(err, store.ErrIndexIncomplete) == complete || complete && err != nil {
					t.Errorf("found %d, %v; want %d to %d", found, err, least, most)
				}
				if err := lastError(x.ix.Indexes().ListIndexFuncValues("byUser")); (err == nil) != complete {
					t.Errorf("values: %v", err)
				}
			}
			has(0, 0, false)
			x.put("p0001", "ernie") // before it is built
			x.put("p2499", "ernie")
			x.remove("p2497")
			x.commit()
			has(1, n/2, false)
			x.crash() // the pieces are kept
			x.commit()
			has(n/4, n/2, false)
			x.put("p0003", "ernie")
			x.commit()
			has(n/2-4, n/2-4, true)
			x.crash()
			has(n/2-4, n/2-4, true)
			if !x.isIdle() {
				t.Error("an index that is complete is written again")
			}
		})
	}
}

// isIdle reports whether a commit has nothing to write.
func (x *indexed) isIdle() bool {
	batch := x.db.NewBatch()
	batch.BuildIndexes(x.ix)
	defer func() { _ = batch.Commit() }()
	return batch.Empty()
}

// An index that is gone leaves nothing behind.
func TestIndexIsDropped(t *testing.T) {
	x := newIndexed(t, (*indexed).commit, byUsers("1"), store.ByNode())
	x.put("one", "ernie")
	x.put("two", "ernie")
	x.reopen(store.ByNode())
	if entries, _ := x.ix.IndexSpace(t); entries != 0 {
		t.Errorf("%d entries are left", entries)
	}
	x.put("one", "bert")
	x.reopen(byUsers("1"))
	if err := lastError(x.ix.Indexes().ByIndex("byUser", "ernie")); !errors.Is(err, store.ErrIndexIncomplete) {
		t.Errorf("it is complete at once: %v", err)
	}
	x.commit()
	x.has("ernie", "two")
	x.has("bert", "one")
	x.reopen()
	if entries, values := x.ix.IndexSpace(t); entries+values != 0 {
		t.Errorf("%d entries and %d values are left", entries, values)
	}
}

// An index is built from no body of an earlier version.
func TestIndexOfStaleBody(t *testing.T) {
	x := newIndexed(t, func(*indexed) {}, store.ByNode())
	x.db.SetBodiesPerSecond(1)
	uid := "5f0c6a4e-2a3d-4d7b-9c1e-00000000000"
	change := func(n int, version, users string) {
		x.seq++
		raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p%d","namespace":"shop","uid":"%s%d","resourceVersion":%q},"spec":{"users":%q}}`, n, uid, n, version, users)
		obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
		testkit.OK(t, err)
		x.pending[obj.Key()] = live(obj, x.seq)
		x.ix.Update(obj.Key(), x.pending[obj.Key()])
		x.commit()
	}
	for n := range 5 {
		change(n, "1", "ernie")
	}
	for n := range 5 {
		change(n, "2", "bert")
	}
	stale, err := x.ix.StaleBodies().From("", 10)
	testkit.OK(t, err)
	if len(stale) == 0 {
		t.Fatal("no body is stale")
	}
	x.reopen(byUsers("1"))
	x.db.SetBodiesPerSecond(1)
	x.commit()
	for key, err := range x.ix.Indexes().IndexKeys("byUser", "ernie") {
		if err == nil {
			t.Errorf("%s is found by a value that it had before", key)
		}
	}
	for _, key := range stale {
		raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":"%s%s","resourceVersion":"2"},"spec":{"users":"bert"}}`,
			strings.TrimPrefix(string(key), "shop/"), uid, string(key[len(key)-1:]))
		obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
		testkit.OK(t, err)
		batch := x.db.NewBatch()
		batch.RefreshBody(x.ix, store.Body{Key: key, Object: obj})
		testkit.OK(t, batch.Commit())
		x.ix.Forget(nil)
	}
	x.commit()
	x.has("bert", "p0", "p1", "p2", "p3", "p4")
}

// What is redacted in the bodies is in no index either.
func TestIndexAfterRewrite(t *testing.T) {
	x := newIndexed(t, (*indexed).commit, byUsers("1"))
	x.put("one", "secret")
	x.put("two", "bert")
	x.reopen(byUsers("1"))
	testkit.OK(t, x.ix.Rewrite(func(body []byte) ([]byte, error) {
		return []byte(strings.ReplaceAll(string(body), "secret", "hidden")), nil
	}, func(entry []byte) ([]byte, error) { return entry, nil }))
	x.commit()
	x.has("secret")
	x.has("hidden", "one")
	testkit.OK(t, x.db.Close())
	files, err := x.fs.List("state")
	testkit.OK(t, err)
	for _, name := range files {
		file, err := x.fs.Open("state/" + name)
		testkit.OK(t, err)
		data, err := io.ReadAll(file)
		testkit.OK(t, err)
		if testkit.OK(t, file.Close()); bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s has what was redacted", name)
		}
	}
}

// Objects of another bridge leave the indexes with their records.
func TestIndexOfNarrowed(t *testing.T) {
	x := newIndexed(t, (*indexed).commit, byUsers("1"))
	x.put("one", "ernie")
	x.put("two", "ernie")
	ix, err := x.db.Indexer(store.IndexerConfig{
		Name: "all/pods", Type: pods, Indexes: x.indexes, Scope: "half",
		Narrowing: store.Narrowing{Keep: func(key resource.Key) bool { return key == "shop/two" }},
	})
	testkit.OK(t, err)
	testkit.Want(t, namesOf(t, ix, "byUser", "ernie"), "two")
	if entries, values := ix.IndexSpace(t); entries != 1 || values != 1 {
		t.Errorf("%d entries and %d values are left", entries, values)
	}
}

// A value of any length and any bytes is found, and no other.
func TestIndexValues(t *testing.T) {
	values := []string{"a", "aa", "\x00", "\xff\xff", strings.Repeat("x", 512), strings.Repeat("x", 513), strings.Repeat("x", 514), strings.Repeat("y", 1<<20), "a/b", "ü"}
	byText := store.Index{Name: "text", Definition: "1", Values: func(dst []string, obj *resource.Object) []string {
		var n int
		fmt.Sscanf(obj.Name, "p%d", &n)
		return append(dst, values[n])
	}}
	x := newIndexed(t, (*indexed).commit, byText)
	for n := range values {
		x.put(fmt.Sprint("p", n), "")
	}
	for n, value := range values {
		testkit.Want(t, namesOf(t, x.ix, "text", value), fmt.Sprint("p", n))
	}
	x.put("p1", "")
	seen := map[string]bool{}
	for value, err := range x.ix.Indexes().ListIndexFuncValues("text") {
		testkit.OK(t, err)
		seen[value] = true
	}
	if len(seen) != len(values) {
		t.Errorf("%d values: %v", len(seen), slices.Collect(maps.Keys(seen)))
	}
}
