package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// faults lets operations of a disk fail while they are on.
type faults struct {
	mu   sync.Mutex
	err  error                  // guarded by mu; nil for none
	of   func(errorfs.Op) bool  // guarded by mu
	hits map[errorfs.OpKind]int // guarded by mu
}

func (f *faults) set(err error, of func(errorfs.Op) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.of, f.hits = err, of, map[errorfs.OpKind]int{}
}

// MaybeError implements errorfs.Injector.
func (f *faults) MaybeError(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || !f.of(op) {
		return nil
	}
	f.hits[op.Kind]++
	return f.err
}

// String implements errorfs.Injector.
func (f *faults) String() string { return "faults" }

func (f *faults) hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.hits) > 0
}

// faulty is a disk whose recycled files have faults too.
type faulty struct{ *errorfs.FS }

// ReuseForWrite implements vfs.FS.
func (f faulty) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.Create(newName, category)
}

// on is an operation on files of one sort; with no kinds, any that writes.
func on(pattern string, kinds ...errorfs.OpKind) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		if matched, _ := path.Match(pattern, path.Base(op.Path)); !matched {
			return false
		}
		if len(kinds) == 0 {
			return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose
		}
		return slices.Contains(kinds, op.Kind)
	}
}

// unwell is a database on a disk with faults, and what was committed to it.
type unwell struct {
	*store.DB
	t        *testing.T
	mem      *vfs.MemFS
	disk     *faults
	registry *prometheus.Registry
	// of one writer at a time: what is logged at Error and Info about the disk
	log   *bytes.Buffer
	fatal func(error) // nil: fails the test
	ix    *store.Indexer
	acked map[resource.Key]string // key -> version that a commit has promised to keep
	count int
}

func (u *unwell) open(fs *vfs.MemFS) {
	u.mem, u.log, u.registry = fs, &bytes.Buffer{}, prometheus.NewRegistry()
	if u.fatal == nil {
		u.fatal = func(err error) { u.t.Errorf("the database can't continue: %v", err) }
	}
	db, err := store.Open(statedb.Options{
		Dir: "state", FS: faulty{errorfs.Wrap(fs, u.disk)}, CacheBytes: 1 << 20, MemTableBytes: 256 << 10, Registerer: u.registry,
		Log: slog.New(slog.NewTextHandler(u.log, nil)), Fatal: u.fatal,
	})
	testkit.OK(u.t, err)
	u.DB, u.ix = db, newIndexer(u.t, db)
}

func newUnwell(t *testing.T) *unwell {
	u := &unwell{t: t, disk: &faults{}, acked: map[resource.Key]string{}}
	u.open(vfs.NewCrashableMem())
	return u
}

// commit settles one more version of a pod with some 8 KiB that can't be compressed.
func (u *unwell) commit() error {
	u.count++
	name, version := fmt.Sprint("p", u.count%50), fmt.Sprint(100+u.count)
	obj := pod(u.t, name, version, fmt.Sprintf(`,"x":"%x"`, noise(u.count)))
	key := resource.Key("shop/" + name)
	batch := u.NewBatch()
	batch.SetPosition(u.ix, resource.Version(version), 0)
	batch.Settle(u.ix, key, live(obj, uint64(u.count)))
	err := batch.Commit()
	if err == nil {
		u.acked[key] = version
	}
	return err
}

// noise is bytes that look like chance.
func noise(seed int) []byte {
	b := make([]byte, 4<<10)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// untilStuck commits until the disk takes no more.
func (u *unwell) untilStuck() {
	u.t.Helper()
	for range 3000 {
		err := u.commit()
		if errors.Is(err, statedb.ErrUnavailable) {
			return
		}
		testkit.OK(u.t, err)
		synctest.Wait() // tables are written meanwhile
	}
	u.t.Fatal("the faults keep nothing from being committed")
}

// check reads everything that was promised.
func (u *unwell) check(what string) {
	u.t.Helper()
	got := map[resource.Key]string{}
	for item, err := range u.ix.All() {
		testkit.OK(u.t, err)
		obj, err := item.Object()
		if err != nil || item.Version.Newer(obj.Version) {
			u.t.Fatalf("%s: the body of %s@%s: %v, %v", what, item.Key, item.Version, obj, err)
		}
		// newer than the record, if a commit that was not promised has just gone through
		got[item.Key] = string(obj.Version)
	}
	for key, version := range u.acked {
		if resource.Version(got[key]).Newer(resource.Version(version)) {
			delete(got, key) // of a commit that was not promised and went through
			continue
		}
		if got[key] != version {
			u.t.Errorf("%s: %s is at version %q, %s was committed", what, key, got[key], version)
		}
	}
}

// A disk that accepts no writes holds commits back, and loses none.
func TestFullDiskCommits(t *testing.T) {
	cases := map[string]struct {
		err error
		of  func(errorfs.Op) bool
	}{
		"the log is full":                      {syscall.ENOSPC, on("*.log", errorfs.OpFileWrite)},
		"the log can't be synced":              {syscall.ENOSPC, on("*.log", errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)},
		"no new log":                           {syscall.ENOSPC, on("*.log", errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpRename)},
		"the list of files is full":            {syscall.ENOSPC, on("MANIFEST-*", errorfs.OpFileWrite)},
		"the list of files can't be synced":    {syscall.ENOSPC, on("MANIFEST-*", errorfs.OpFileSync, errorfs.OpFileSyncData)},
		"no new table":                         {syscall.ENOSPC, on("*.sst", errorfs.OpCreate)},
		"tables are full":                      {syscall.ENOSPC, on("*.sst", errorfs.OpFileWrite)},
		"tables can't be synced":               {syscall.ENOSPC, on("*.sst*", errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)},
		"directories can't be synced":          {syscall.ENOSPC, on("state", errorfs.OpFileSync)},
		"everything is full":                   {syscall.ENOSPC, on("*")},
		"the quota is used up":                 {syscall.EDQUOT, on("*")},
		"everything is read-only":              {syscall.EROFS, on("*")},
		"files can't be removed, nor anything": {syscall.EROFS, on("*", errorfs.OpRemove, errorfs.OpRename, errorfs.OpCreate)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUnwell(t)
				for range 100 {
					testkit.OK(t, u.commit())
				}
				u.disk.set(c.err, c.of)
				u.untilStuck()
				u.whileStuck(c.err)
				crashed := u.mem.CrashClone(vfs.CrashCloneCfg{})
				promised := maps.Clone(u.acked)

				u.disk.set(nil, nil)
				for time.Sleep(3 * time.Second); u.Database().Unavailable() != nil; time.Sleep(time.Second) {
				}
				for range 200 {
					testkit.OK(t, u.commit())
				}
				if !u.disk.hit() && u.Database().Health() != nil {
					t.Errorf("Health: %v", u.Database().Health())
				}
				u.check("when the disk is well again")
				testkit.OK(t, u.Close())
				if n := strings.Count(u.log.String(), "nothing is committed until"); n != strings.Count(u.log.String(), "level=INFO") || n == 0 || n > 3 {
					t.Errorf("it is reported %d times:\n%s", n, u.log)
				}
				u.open(u.mem)
				u.check("after a restart")
				testkit.OK(t, u.Close())

				u.acked = promised
				u.open(crashed)
				u.check("after a crash while the disk was unwell")
				testkit.OK(t, u.Close())
			})
		})
	}
}

// whileStuck sees that what only reads continues, and says what is wrong.
func (u *unwell) whileStuck(why error) {
	u.t.Helper()
	u.check("while the disk is unwell")
	u.Database().DiskBytes()
	_, _, err := u.ix.Log().Bounds()
	testkit.OK(u.t, err)
	words, reason := "is full", "full"
	if errors.Is(why, syscall.EROFS) {
		words, reason = "is read-only", "read-only"
	}
	if err := u.Database().Health(); !errors.Is(err, statedb.ErrUnavailable) || !strings.Contains(err.Error(), words) {
		u.t.Errorf("Health: %v", err)
	}
	expected := `
# HELP bridge_store_unavailable 1 while commits wait because the state directory takes no writes, by reason.
# TYPE bridge_store_unavailable gauge
bridge_store_unavailable{reason="full"} ` + fmt.Sprint(b2i(reason == "full")) + `
bridge_store_unavailable{reason="read-only"} ` + fmt.Sprint(b2i(reason == "read-only")) + "\n"
	if err := testutil.GatherAndCompare(u.registry, strings.NewReader(expected), "bridge_store_unavailable"); err != nil {
		u.t.Error(err)
	}
	began := time.Now()
	for range 10 {
		if err := u.commit(); !errors.Is(err, statedb.ErrUnavailable) {
			u.t.Errorf("Commit: %v", err)
		}
	}
	if took := time.Since(began); took > 0 {
		u.t.Errorf("ten commits that can't be done take %s", took)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
