package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var pods = testkit.Pods

func openDB(t *testing.T, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(statedb.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newIndexer(t *testing.T, db *store.DB) *store.Indexer {
	t.Helper()
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// pod makes a pod in namespace shop; extra is put into its JSON.
func pod(t *testing.T, name, version string, extra ...string) *resource.Object {
	t.Helper()
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":"uid-%s","resourceVersion":%q}%s}`,
		name, name, version, strings.Join(extra, ""))
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// settle commits objects as settled and forgets them in the overlay, as the checkpoint does.
func settle(t *testing.T, db *store.DB, ix *store.Indexer, watermark resource.Version, settled map[resource.Key]store.NewState) {
	t.Helper()
	batch := db.NewBatch()
	if watermark != "" {
		batch.SetPosition(ix, watermark, 0)
	}
	for key, s := range settled {
		batch.Settle(ix, key, s)
	}
	testkit.OK(t, batch.Commit())
	ix.Forget(settled)
}

func live(obj *resource.Object, seq uint64) store.NewState {
	return store.NewState{Record: store.Record{UID: obj.UID, Version: obj.Version}, Object: obj, Seq: seq}
}

func dead(obj *resource.Object, version resource.Version, seq uint64) store.NewState {
	return store.NewState{Record: store.Record{UID: obj.UID, Version: version, Deleted: true}, Seq: seq}
}

func keys(t *testing.T, ix *store.Indexer) []string {
	t.Helper()
	var out []string
	for item, err := range ix.All() {
		testkit.OK(t, err)
		out = append(out, string(item.Key)+"@"+string(item.Version))
	}
	return out
}

// What is in flight is read before what is settled.
func TestOverlay(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	one, two := pod(t, "a", "1"), pod(t, "a", "2")
	ix.Update("shop/a", live(one, 1))
	settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": live(one, 1)})
	ix.Update("shop/a", live(two, 2))

	rec, found, err := ix.Get("shop/a")
	if err != nil || !found || rec.Version != "2" {
		t.Fatalf("Get: %+v, %v, %v; want version 2", rec, found, err)
	}
	obj, err := ix.Object("shop/a")
	if err != nil || obj != two {
		t.Fatalf("Object: %v, %v; want the one in flight", obj, err)
	}
	// A commit of an older change leaves the newer one where it is.
	ix.Forget(map[resource.Key]store.NewState{"shop/a": live(one, 1)})
	if rec, _, _ := ix.Get("shop/a"); rec.Version != "2" {
		t.Errorf("after the commit of version 1 it reads %+v", rec)
	}
}

// A crash leaves the last settled state.
func TestStateAfterCrash(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	ix := newIndexer(t, db)
	one, two := pod(t, "a", "1", `,"spec":{"x":1}`), pod(t, "a", "2")
	settle(t, db, ix, "1", map[resource.Key]store.NewState{"shop/a": live(one, 1)})
	ix.Update("shop/a", live(two, 2))
	testkit.OK(t, db.Close())

	db = openDB(t, dir)
	ix = newIndexer(t, db)
	obj, err := ix.Object("shop/a")
	if err != nil || string(obj.Raw) != string(one.Raw) || obj.Version != "1" || obj.UID != one.UID {
		t.Fatalf("Object: %+v, %v; want version 1, byte for byte", obj, err)
	}
	pos, err := ix.Meta().Position()
	if err != nil || pos.Version != "1" {
		t.Errorf("Position: %+v, %v", pos, err)
	}
}

// Tombstones stay until the watermark has passed them.
func TestTombstones(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	a, b := pod(t, "a", "5"), pod(t, "b", "6")
	settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": live(a, 1), "shop/b": live(b, 2)})
	settle(t, db, ix, "6", map[resource.Key]store.NewState{"shop/a": dead(a, "9", 3), "shop/b": dead(b, "10", 4)})
	tombstone := func(key resource.Key, expected bool) {
		t.Helper()
		rec, found, err := ix.Get(key)
		testkit.OK(t, err)
		if found != expected || found && !rec.Deleted {
			t.Errorf("%s: %+v, found %v; want a tombstone: %v", key, rec, found, expected)
		}
	}
	tombstone("shop/a", true)
	if obj, err := ix.Object("shop/a"); obj != nil || err != nil {
		t.Errorf("the body of a deleted object is still there: %v, %v", obj, err)
	}
	settle(t, db, ix, "9", nil)
	tombstone("shop/a", false)
	tombstone("shop/b", true) // 10 is after 9, though not as text
	settle(t, db, ix, "10", nil)
	tombstone("shop/b", false)
}

// An object that was recreated is not lost with its tombstone.
func TestTombstoneOfRecreated(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	a, again := pod(t, "a", "5"), pod(t, "a", "12")
	settle(t, db, ix, "5", map[resource.Key]store.NewState{"shop/a": dead(a, "9", 1)})
	// The watermark passes the deletion in the same commit that settles the new object.
	settle(t, db, ix, "11", map[resource.Key]store.NewState{"shop/a": live(again, 2)})
	settle(t, db, ix, "12", nil)
	testkit.Want(t, keys(t, ix), "shop/a@12")
}

// A version without order leaves no tombstone.
func TestTombstoneWithoutOrder(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	a := pod(t, "a", "x-1")
	settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": live(a, 1)})
	settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": dead(a, "x-2", 2)})
	if _, found, err := ix.Get("shop/a"); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// Iteration merges what is in flight with what is settled.
func TestIteration(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db)
	settled := map[resource.Key]store.NewState{}
	for i, name := range []string{"b", "d", "f"} {
		settled[resource.Key("shop/"+name)] = live(pod(t, name, "1"), uint64(i))
	}
	settle(t, db, ix, "", settled)
	ix.Update("shop/a", live(pod(t, "a", "2"), 10))
	ix.Update("shop/d", live(pod(t, "d", "3"), 11))
	ix.Update("shop/f", dead(pod(t, "f", "1"), "4", 12))
	ix.Update("shop/z", live(pod(t, "z", "5"), 13))
	testkit.Want(t, keys(t, ix), "shop/a@2", "shop/b@1", "shop/d@3", "shop/z@5")
}

// The known objects that were not listed are missing.
func TestMissing(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db)
	settle(t, db, ix, "", map[resource.Key]store.NewState{
		"shop/listed": live(pod(t, "listed", "1"), 1),
		"shop/gone":   live(pod(t, "gone", "2"), 2),
		"shop/newer":  live(pod(t, "newer", "100"), 3),
	})
	ix.Update("shop/onway", live(pod(t, "onway", "5"), 4))
	testkit.OK(t, ix.Listing().Clear())
	testkit.OK(t, ix.Listing().Add([]resource.Key{"shop/listed", "shop/unknown"}))
	missing := func(kind resource.RelistKind) (out []string) {
		for m, err := range ix.Listing().Missing("50", resource.Relist{Kind: kind}) {
			testkit.OK(t, err)
			out = append(out, string(m))
		}
		return out
	}
	testkit.Want(t, missing(resource.RelistGap), "shop/gone", "shop/onway")
	testkit.Want(t, missing(resource.RelistRewound), "shop/gone", "shop/newer", "shop/onway")
	testkit.OK(t, ix.Listing().Clear())
	testkit.Want(t, missing(resource.RelistGap), "shop/gone", "shop/listed", "shop/onway")
}

// What is known at the end of a list that began with nothing was in it, so a first snapshot of a
// million objects adds none.
func TestFirstListing(t *testing.T) {
	ix := newIndexer(t, openDB(t, ""))
	list := func(keys ...resource.Key) {
		t.Helper()
		testkit.OK(t, ix.Listing().Begin())
		for i, key := range keys {
			ix.Update(key, live(pod(t, string(key[len("shop/"):]), "5"), uint64(i+1)))
		}
		testkit.OK(t, ix.Listing().Add(keys))
	}
	check := func(listed int, missing ...string) {
		t.Helper()
		var got []string
		for m, err := range ix.Listing().Missing("50", resource.Relist{}) {
			testkit.OK(t, err)
			got = append(got, string(m))
		}
		testkit.Want(t, got, missing...)
		if n, err := ix.CountListed(); n != listed || err != nil {
			t.Errorf("%d listed, %v; want %d", n, err, listed)
		}
	}
	list("shop/a", "shop/b")
	check(0)
	list("shop/a", "shop/c") // the first broke off
	check(2, "shop/b")
	testkit.OK(t, ix.Listing().Clear())
	check(0, "shop/a", "shop/b", "shop/c")
}

// A namespace is a range of keys.
func TestNamespaceRange(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db)
	of := func(namespace, name, version string) *resource.Object {
		obj := pod(t, name, version)
		obj.Namespace = namespace
		return obj
	}
	settle(t, db, ix, "", map[resource.Key]store.NewState{
		"shop/a":   live(of("shop", "a", "1"), 1),
		"shop-2/a": live(of("shop-2", "a", "2"), 2),
		"web/a":    live(of("web", "a", "3"), 3),
	})
	ix.Update("shop/b", live(of("shop", "b", "4"), 4))
	ix.Update("web/b", live(of("web", "b", "5"), 5))
	for namespace, expected := range map[string][]resource.Key{
		"shop": {"shop/a", "shop/b"}, "web": {"web/a", "web/b"}, "none": nil,
		"": {"shop-2/a", "shop/a", "shop/b", "web/a", "web/b"},
	} {
		var got []resource.Key
		for item, err := range ix.InNamespace(namespace) {
			testkit.OK(t, err)
			got = append(got, item.Key)
		}
		testkit.Want(t, got, expected...)
	}
}

// Informers do not see each other's state.
func TestInformerIsolation(t *testing.T) {
	db := openDB(t, "")
	first := newIndexer(t, db)
	second, err := db.Indexer(store.IndexerConfig{Name: "other/pods", Type: pods})
	testkit.OK(t, err)
	settle(t, db, first, "7", map[resource.Key]store.NewState{"shop/a": live(pod(t, "a", "1"), 1)})
	testkit.Want(t, keys(t, second))
	if pos, err := second.Meta().Position(); pos.Version != "" || err != nil {
		t.Errorf("Position: %+v, %v", pos, err)
	}
}

// Another scope deletes the position, and keeps the state.
func TestScopeChange(t *testing.T) {
	db := openDB(t, "")
	ix, err := db.Indexer(store.IndexerConfig{Name: "x", Type: pods, Scope: "app=a"})
	testkit.OK(t, err)
	settle(t, db, ix, "7", map[resource.Key]store.NewState{"shop/a": live(pod(t, "a", "1"), 1)})
	ix, err = db.Indexer(store.IndexerConfig{Name: "x", Type: pods, Scope: "app=b"})
	testkit.OK(t, err)
	if pos, err := ix.Meta().Position(); pos.Version != "" || err != nil {
		t.Errorf("Position: %+v, %v", pos, err)
	}
	testkit.Want(t, keys(t, ix), "shop/a@1")
}

// A damaged database is refused, and left as it is.
func TestDamagedDatabase(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	settle(t, db, newIndexer(t, db), "1", map[resource.Key]store.NewState{"shop/a": live(pod(t, "a", "1"), 1)})
	testkit.OK(t, db.Close())
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal("no manifest", err)
	}
	for _, m := range manifests {
		testkit.OK(t, os.WriteFile(m, []byte("not a manifest"), 0o600))
	}
	if _, err := store.Open(statedb.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("Open: %v; want it refused, with what to do", err)
	}
}

// Data without a manifest is refused, and left as it is.
func TestDataWithoutManifest(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	settle(t, db, newIndexer(t, db), "1", map[resource.Key]store.NewState{"shop/a": live(pod(t, "a", "1"), 1)})
	testkit.OK(t, db.Close())
	markers, err := filepath.Glob(filepath.Join(dir, "marker.manifest.*"))
	if err != nil || len(markers) == 0 {
		t.Fatal("no marker", err)
	}
	for _, m := range markers {
		testkit.OK(t, os.Remove(m))
	}
	before, err := os.ReadDir(dir)
	testkit.OK(t, err)
	if _, err := store.Open(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrDamaged) {
		t.Errorf("Open: %v, want ErrDamaged", err)
	}
	after, err := os.ReadDir(dir)
	testkit.OK(t, err)
	if len(before) != len(after) {
		t.Errorf("there were %d files, and are %d", len(before), len(after))
	}
}

// benchState is a database on disk, and a pod of 6 KB.
func benchState(b *testing.B) (*store.DB, *store.Indexer, *resource.Object) {
	db, err := store.Open(statedb.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	ix, err := db.Indexer(store.IndexerConfig{Name: "x", Type: pods})
	if err != nil {
		b.Fatal(err)
	}
	raw := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"1"},"x":"` + strings.Repeat("some text ", 600) + `"}`)
	obj, err := resource.Parse(raw, resource.ParseOptions{Type: pods})
	if err != nil {
		b.Fatal(err)
	}
	return db, ix, obj
}

func BenchmarkSettle(b *testing.B) {
	db, ix, obj := benchState(b)
	const objects = 1000
	b.ReportAllocs()
	for b.Loop() {
		batch := db.NewBatch()
		for i := range objects {
			batch.Settle(ix, resource.Key(fmt.Sprint("shop/pod-", i)), live(obj, 1))
		}
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*objects), "µs/object")
}
