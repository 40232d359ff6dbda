package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// leaveState is what a bridge with two informers leaves: two pods, one tombstone, two changes on
// disk and position 9 of all/pods, and one pod of other/pods.
func leaveState(t *testing.T, dir string) *store.DB {
	t.Helper()
	db := openDB(t, dir)
	testkit.OK(t, db.Database().Identity().BindCluster("cluster-1"))
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Scope: "labels=app=x"})
	testkit.OK(t, err)
	settle(t, db, ix, "9", map[resource.Key]store.NewState{
		"shop/a": live(pod(t, "a", "5", `,"spec":{"x":1}`), 1),
		"shop/b": live(pod(t, "b", "6"), 2),
		"shop/c": dead(pod(t, "c", "6"), "12", 3),
	})
	testkit.OK(t, ix.Listing().Add([]resource.Key{"shop/a"}))
	waiting := db.NewBatch()
	waiting.AppendLog(ix, store.LogEntry{Position: 3, Data: []byte("12345")})
	waiting.AppendLog(ix, store.LogEntry{Position: 4, Data: []byte("1234567")})
	waiting.SetCursor(ix, "sink", []byte("{}"))
	testkit.OK(t, waiting.Commit())
	other, err := db.Indexer(store.IndexerConfig{Name: "other/pods", Type: pods})
	testkit.OK(t, err)
	settle(t, db, other, "", map[resource.Key]store.NewState{"shop/a": live(pod(t, "a", "5"), 1)})
	return db
}

func inspect(t *testing.T, dir string) *store.Inspector {
	t.Helper()
	in, err := store.Inspect(statedb.Options{Dir: dir})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, in.Close()) })
	return in
}

func cacheUnit(t *testing.T, in *store.Inspector, name string) store.Unit {
	t.Helper()
	units, err := in.Units()
	testkit.OK(t, err)
	for _, u := range units {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("no unit %s in %v", name, units)
	return store.Unit{}
}

// contents is a digest of every file but the lock.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	testkit.OK(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "LOCK" {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %x\n", path, sha256.Sum256(data))
		return err
	}))
	return all.String()
}

// An inspector reports what a bridge left.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	before := time.Now()
	testkit.OK(t, leaveState(t, dir).Close())
	in := inspect(t, dir)

	s, err := in.Summary()
	testkit.OK(t, err)
	if s.Format != statedb.FormatVersion || s.Cluster != "cluster-1" || s.Dir != dir || s.DiskBytes < 500 {
		t.Errorf("Summary: %+v", s)
	}
	units, err := in.Units()
	testkit.OK(t, err)
	var names []string
	for _, u := range units {
		names = append(names, u.Name+" "+u.Scope)
	}
	testkit.Want(t, names, "all/pods labels=app=x", "other/pods ")

	usage, err := units[0].Usage()
	testkit.OK(t, err)
	if usage.Objects != 2 || usage.Tombstones != 1 || usage.Damaged != 0 || usage.Waiting != 2 {
		t.Errorf("Usage: %+v", usage)
	}
	if usage.WaitingBytes != 2*(1+4+8)+5+7 {
		t.Errorf("two changes take %d bytes", usage.WaitingBytes)
	}
	// Of each object: a letter and the number, the key; flags, a length, the uid, the version.
	if expected := int64(3*(1+4+len("shop/a")+2+len("uid-a")) + len("5"+"6"+"12")); usage.RecordBytes != expected {
		t.Errorf("records take %d bytes, want %d", usage.RecordBytes, expected)
	}
	if usage.BodyBytes < 2*60 || usage.BodyBytes > 2*200 {
		t.Errorf("two bodies of about 120 bytes take %d", usage.BodyBytes)
	}
	pos, err := units[0].Position()
	if err != nil || pos.Version != "9" || pos.Time.Before(before.Add(-time.Second)) {
		t.Errorf("Position: %+v, %v", pos, err)
	}
	if pos, err := units[1].Position(); err != nil || pos.Version != "" {
		t.Errorf("Position of a unit without one: %+v, %v", pos, err)
	}
	var keys []string
	for key, err := range units[0].Keys() {
		testkit.OK(t, err)
		keys = append(keys, string(key))
	}
	testkit.Want(t, keys, "shop/a", "shop/b")
}

// An inspector reads objects as they were settled.
func TestInspectObjects(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	u := cacheUnit(t, inspect(t, dir), "all/pods")

	s, found, err := u.Object("shop/a")
	if err != nil || !found || s.UID != "uid-a" || s.Version != "5" || s.Deleted || s.BodyBytes == 0 {
		t.Errorf("Object: %+v, %v, %v", s, found, err)
	}
	if expected := pod(t, "a", "5", `,"spec":{"x":1}`).Raw; string(s.Body) != string(expected) {
		t.Errorf("the body is %s, want %s", s.Body, expected)
	}
	s, found, err = u.Object("shop/c")
	if err != nil || !found || !s.Deleted || s.Version != "12" || s.Body != nil {
		t.Errorf("Object of a deleted one: %+v, %v, %v", s, found, err)
	}
	if s, found, err := u.Object("shop/z"); err != nil || found {
		t.Errorf("Object of an unknown one: %+v, %v, %v", s, found, err)
	}
}

// An inspector reads what a crash left, and changes nothing.
func TestInspectAfterCrash(t *testing.T) {
	dir, crashed := t.TempDir(), t.TempDir()
	leaveState(t, dir)
	testkit.OK(t, os.CopyFS(crashed, os.DirFS(dir))) // as after kill -9: nothing was closed
	before := contents(t, crashed)

	in, err := store.Inspect(statedb.Options{Dir: crashed})
	testkit.OK(t, err)
	usage, err := cacheUnit(t, in, "all/pods").Usage()
	testkit.OK(t, err)
	if usage.Objects != 2 {
		t.Errorf("Usage: %+v", usage)
	}
	testkit.OK(t, in.Close())
	if after := contents(t, crashed); after != before {
		t.Errorf("reading changed the directory from\n%sto\n%s", before, after)
	}
}

// An inspector creates no directory.
func TestInspectNoDirectory(t *testing.T) {
	missing, empty := filepath.Join(t.TempDir(), "db"), t.TempDir()
	for _, dir := range []string{missing, empty} {
		if _, err := store.Inspect(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrNoState) {
			t.Errorf("Inspect: %v, want ErrNoState", err)
		}
		if err := store.Reset(statedb.Options{Dir: dir}, "all/pods", false); !errors.Is(err, statedb.ErrNoState) {
			t.Errorf("Reset: %v, want ErrNoState", err)
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	if entries, _ := os.ReadDir(empty); len(entries) > 0 {
		t.Errorf("%v was put into the directory", entries)
	}
}

// An inspector refuses a directory in use.
func TestInspectInUse(t *testing.T) {
	dir := t.TempDir()
	leaveState(t, dir)
	if _, err := store.Inspect(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrInUse) || !strings.Contains(err.Error(), "stop the bridge") {
		t.Errorf("Inspect: %v, want ErrInUse and what to do", err)
	}
}

// An inspector refuses a directory of something else, and leaves it as it is.
func TestInspectForeignDirectory(t *testing.T) {
	files := t.TempDir()
	testkit.OK(t, os.WriteFile(filepath.Join(files, "thesis.tex"), []byte("precious"), 0o600))

	pebbles := t.TempDir()
	p, err := pebble.Open(pebbles, &pebble.Options{Logger: quiet{}})
	testkit.OK(t, err)
	testkit.OK(t, p.Set([]byte("chapter"), []byte("precious"), pebble.Sync))
	testkit.OK(t, p.Close())

	otherFormat := t.TempDir()
	testkit.OK(t, leaveState(t, otherFormat).Close())
	overwrite(t, otherFormat, "Mformat", "99")

	for name, dir := range map[string]string{"other files": files, "has no format": pebbles, `it has format "99"`: otherFormat} {
		before := contents(t, dir)
		if _, err := store.Inspect(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrForeign) || !strings.Contains(err.Error(), name) {
			t.Errorf("Inspect: %v, want ErrForeign: %s", err, name)
		}
		if err := store.Reset(statedb.Options{Dir: dir}, "all/pods", false); !errors.Is(err, statedb.ErrForeign) {
			t.Errorf("Reset: %v, want ErrForeign: %s", err, name)
		}
		if contents(t, dir) != before {
			t.Errorf("the directory was changed: %s", name)
		}
	}
}

// quiet is a logger for databases that a test opens by itself.
type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any) {}

// overwrite changes a value behind the store's back.
func overwrite(t *testing.T, dir, key, value string) {
	t.Helper()
	p, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest})
	testkit.OK(t, err)
	testkit.OK(t, p.Set([]byte(key), []byte(value), pebble.Sync))
	testkit.OK(t, p.Close())
}

// A damaged manifest is reported, and left as it is.
func TestInspectDamagedManifest(t *testing.T) {
	damage := map[string]func(file string){
		"MANIFEST-*":        func(file string) { testkit.OK(t, os.WriteFile(file, []byte("not a manifest"), 0o600)) },
		"marker.manifest.*": func(file string) { testkit.OK(t, os.Remove(file)) },
	}
	for pattern, harm := range damage {
		dir := t.TempDir()
		testkit.OK(t, leaveState(t, dir).Close())
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range found {
			harm(file)
		}
		before := contents(t, dir)
		if _, err := store.Inspect(statedb.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "restore it from a copy, or move it away") {
			t.Errorf("%s: Inspect: %v, want what to do", pattern, err)
		}
		if err := store.Reset(statedb.Options{Dir: dir}, "all/pods", false); err == nil {
			t.Errorf("%s: Reset did something", pattern)
		}
		if contents(t, dir) != before {
			t.Errorf("%s: the directory was changed", pattern)
		}
	}
}

// A damaged block is reported by whatever reads it.
func TestInspectDamagedBlock(t *testing.T) {
	dir := t.TempDir()
	db := leaveState(t, dir)
	ix, err := db.Indexer(store.IndexerConfig{Name: "third/pods", Type: pods})
	testkit.OK(t, err)
	settled := map[resource.Key]store.NewState{}
	for i := range 2000 {
		name := fmt.Sprint("web-", i)
		settled[resource.Key("shop/"+name)] = live(pod(t, name, "5", fmt.Sprintf(`,"x":"%x"`, sha256.Sum256([]byte(name)))), 1)
	}
	settle(t, db, ix, "5", settled)
	testkit.OK(t, db.Close())
	testkit.OK(t, openDB(t, dir).Close()) // what lay in the log is a table now
	for _, table := range tablesOfBodies(t, dir) {
		flipBit(t, table)
	}

	in := inspect(t, dir)
	if _, err := in.Check(); !errors.Is(err, statedb.ErrDamaged) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("Check: %v, want ErrDamaged", err)
	}
	if readable, err := cacheUnit(t, in, "third/pods").Check(); !errors.Is(err, statedb.ErrDamaged) || readable == 2000 {
		t.Errorf("Check of the unit: %d are readable, %v", readable, err)
	}
	_, err = cacheUnit(t, in, "third/pods").Usage()
	if !errors.Is(err, statedb.ErrDamaged) || !strings.Contains(err.Error(), "checksum") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Usage: %v, want ErrDamaged, in one line", err)
	}
	if _, found, err := cacheUnit(t, in, "third/pods").Object("shop/web-999"); !found || err != nil {
		t.Errorf("what is not damaged can't be read: %v, %v", found, err)
	}
}

// A record that does not parse is counted, and the others are read.
func TestInspectBadRecord(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	overwrite(t, dir, "r\x00\x00\x00\x01shop/b", "\xff")
	u := cacheUnit(t, inspect(t, dir), "all/pods")
	usage, err := u.Usage()
	if err != nil || usage.Damaged != 1 || usage.Objects != 1 || usage.Tombstones != 1 {
		t.Errorf("Usage: %+v, %v", usage, err)
	}
	if _, found, err := u.Object("shop/b"); found || err == nil {
		t.Errorf("Object: %v, %v; want an error", found, err)
	}
	if _, found, err := u.Object("shop/a"); !found || err != nil {
		t.Errorf("Object of another: %v, %v", found, err)
	}
}
