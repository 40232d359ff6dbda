package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

func reset(t *testing.T, dir, unit string, keepObjects bool) {
	t.Helper()
	testkit.OK(t, store.Reset(statedb.Options{Dir: dir}, unit, keepObjects))
}

// A reset deletes the state of one unit, and nothing else.
func TestReset(t *testing.T) {
	dir := t.TempDir()
	db := leaveState(t, dir)
	secret, err := db.Database().Identity().Secret()
	testkit.OK(t, err)
	testkit.OK(t, db.Close())
	reset(t, dir, "all/pods", false)

	for _, key := range rawKeys(t, dir) {
		if strings.HasPrefix(key[1:], "\x00\x00\x00\x01") {
			t.Errorf("%q is still there", key)
		}
	}
	in := inspect(t, dir)
	units, err := in.Units()
	testkit.OK(t, err)
	if len(units) != 1 || units[0].Name != "other/pods" {
		t.Errorf("Units: %v", units)
	}
	if _, found, err := units[0].Object("shop/a"); !found || err != nil {
		t.Errorf("the other unit lost its object: %v, %v", found, err)
	}
	testkit.OK(t, in.Close())

	db = openDB(t, dir)
	testkit.OK(t, db.Database().Identity().BindCluster("cluster-1"))
	if again, err := db.Database().Identity().Secret(); err != nil || string(again) != string(secret) {
		t.Errorf("the key of redaction is another, %v", err)
	}
	ix := newIndexer(t, db)
	testkit.Want(t, keys(t, ix))
	if pos, err := ix.Meta().Position(); err != nil || pos.Version != "" {
		t.Errorf("Position: %+v, %v", pos, err)
	}
}

// rawKeys are all keys of the database, so that a space that a reset forgets to forget is found.
func rawKeys(t *testing.T, dir string) (keys []string) {
	t.Helper()
	p, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest, ReadOnly: true})
	testkit.OK(t, err)
	it, err := p.NewIter(nil)
	testkit.OK(t, err)
	for it.First(); it.Valid(); it.Next() {
		keys = append(keys, string(it.Key()))
	}
	testkit.OK(t, errors.Join(it.Close(), p.Close()))
	return keys
}

// A reset that keeps objects deletes the position.
func TestResetOfPosition(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	before := rawKeys(t, dir)
	reset(t, dir, "all/pods", true)
	testkit.Want(t, rawKeys(t, dir), before...) // the position has no version any more
	ix, err := openDB(t, dir).Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Scope: "labels=app=x"})
	testkit.OK(t, err)
	testkit.Want(t, keys(t, ix), "shop/a@5", "shop/b@6")
	if pos, err := ix.Meta().Position(); err != nil || pos.Version != "" {
		t.Errorf("Position: %+v, %v", pos, err)
	}
	if owed, _, err := ix.Meta().GapOwed(); !owed || err != nil {
		t.Errorf("a gap is owed: %v, %v", owed, err)
	}
}

// A reset deletes records that do not parse.
func TestResetOfBadRecords(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	overwrite(t, dir, "r\x00\x00\x00\x01shop/b", "\xff")
	overwrite(t, dir, "p\x00\x00\x00\x01", "{")
	reset(t, dir, "all/pods", false)
	testkit.Want(t, keys(t, newIndexer(t, openDB(t, dir))))
}

// A reset while a bridge runs is refused.
func TestResetInUse(t *testing.T) {
	dir := t.TempDir()
	leaveState(t, dir)
	if err := store.Reset(statedb.Options{Dir: dir}, "all/pods", false); !errors.Is(err, statedb.ErrInUse) {
		t.Errorf("Reset: %v, want ErrInUse", err)
	}
}

// A reset of an unknown unit changes nothing.
func TestResetOfUnknownUnit(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	before := contents(t, dir)
	if err := store.Reset(statedb.Options{Dir: dir}, "all/pod", false); err == nil || !strings.Contains(err.Error(), "has no informer all/pod") {
		t.Errorf("Reset: %v", err)
	}
	if contents(t, dir) != before {
		t.Error("the directory was changed")
	}
}

// A crash is tried before every operation on the file system, with nothing left of what was not
// synced.
func TestResetCrash(t *testing.T) {
	disk := vfs.NewCrashableMem()
	db, err := store.Open(statedb.Options{Dir: "db", FS: disk})
	testkit.OK(t, err)
	ix := newIndexer(t, db)
	settle(t, db, ix, "9", map[resource.Key]store.NewState{
		"shop/a": live(pod(t, "a", "5"), 1), "shop/b": live(pod(t, "b", "6"), 2), "shop/c": dead(pod(t, "c", "6"), "12", 3),
	})
	testkit.OK(t, db.Close())

	var mu sync.Mutex // guards crashes
	var crashes []*vfs.MemFS
	watched := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{}))
		return nil
	}))
	testkit.OK(t, store.Reset(statedb.Options{Dir: "db", FS: watched}, "all/pods", false))
	crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{}))

	all, nothing := 0, 0
	for i, crash := range crashes {
		switch left := remains(t, crash); left {
		case "9 {2 1}":
			all++
		case "":
			nothing++
		default:
			t.Errorf("a crash before operation %d leaves %s", i, left)
		}
	}
	t.Logf("of %d crashes %d leave all, %d nothing", len(crashes), all, nothing)
	if all == 0 || nothing == 0 || remains(t, crashes[len(crashes)-1]) != "" {
		t.Errorf("of %d crashes %d leave all and %d nothing", len(crashes), all, nothing)
	}
}

// remains is the position, the objects and the tombstones of all/pods, "" when it is not there.
func remains(t *testing.T, disk vfs.FS) string {
	t.Helper()
	in, err := store.Inspect(statedb.Options{Dir: "db", FS: disk})
	testkit.OK(t, err)
	defer in.Close()
	units, err := in.Units()
	testkit.OK(t, err)
	if len(units) == 0 {
		return ""
	}
	usage, err := units[0].Usage()
	testkit.OK(t, err)
	pos, err := units[0].Position()
	testkit.OK(t, err)
	return fmt.Sprintf("%s {%d %d}", pos.Version, usage.Objects, usage.Tombstones)
}
