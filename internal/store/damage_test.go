package store_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var damageRuns = flag.Int("store.damage", 30, "how many damaged copies of a state directory are opened, and lives on a failing disk are lived")

// leaveCopies leaves a state directory with tables and a log, as a crash does, and an older copy.
func leaveCopies(t *testing.T) (left, older string, want []string) {
	t.Helper()
	left, older = filepath.Join(t.TempDir(), "left"), filepath.Join(t.TempDir(), "older")
	dir := t.TempDir()
	db, err := store.Open(statedb.Options{Dir: dir, MemTableBytes: 64 << 10})
	testkit.OK(t, err)
	ix := newIndexer(t, db)
	for i := range 20 {
		if i == 10 {
			testkit.Eventually(t, "an older copy is whole", func() bool { return copyWhole(dir, older) })
		}
		settled := map[resource.Key]store.NewState{}
		for j := range 10 {
			n := 10*i + j
			name := fmt.Sprint("p", n%120) // some are settled twice
			settled[resource.Key("shop/"+name)] = live(pod(t, name, fmt.Sprint(100+n), fmt.Sprintf(`,"x":"%x"`, noise(n))), uint64(n+1))
		}
		settle(t, db, ix, "", settled)
	}
	want = keys(t, ix)
	testkit.Eventually(t, "the copy of a running database is whole", func() bool {
		if !copyWhole(dir, left) {
			return false
		}
		got, err := readState(left)
		return err == nil && slices.Equal(got, want) && copyWhole(dir, left)
	})
	testkit.OK(t, db.Close())
	return left, older, want
}

func copyWhole(from, to string) bool {
	return os.RemoveAll(to) == nil && os.CopyFS(to, os.DirFS(from)) == nil
}

// readState opens a state directory as the bridge does, and reads all of it. What ends the process
// is an error.
func readState(dir string) (found []string, err error) {
	fatal := make(chan error, 1)
	db, err := store.Open(statedb.Options{Dir: dir, Fatal: func(err error) { fatal <- err }})
	if err != nil {
		return nil, err
	}
	defer func() {
		closeErr := db.Close() // else Pebble reads what is damaged again and again
		select {
		case err = <-fatal: // the process has ended
		default:
			err = errors.Join(err, closeErr)
		}
	}()
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	if err != nil {
		return nil, err
	}
	for item, err := range ix.All() {
		if err != nil {
			return found, err
		}
		obj, err := item.Object()
		if err != nil {
			return found, err
		}
		found = append(found, string(item.Key)+"@"+string(obj.Version))
	}
	return found, nil
}

// After any damage to a file everything is there, or an error says what to do.
func TestDamageIsNotSilent(t *testing.T) {
	left, older, want := leaveCopies(t)
	files, err := filepath.Glob(filepath.Join(left, "*"))
	testkit.OK(t, err)
	outcomes := map[string]int{}
	for run := range testkit.Rounds(*damageRuns, 6) {
		random := rand.New(rand.NewPCG(51, uint64(run)))
		file := files[run%len(files)]
		d := testkit.Damages[random.IntN(len(testkit.Damages))]
		dir := filepath.Join(t.TempDir(), "state")
		testkit.OK(t, os.CopyFS(dir, os.DirFS(left)))
		d.Do(t, random, filepath.Join(dir, filepath.Base(file)), older)
		got, err := readState(dir)
		kind := strings.Trim(filepath.Base(file), "0123456789")
		what := fmt.Sprintf("run %d: %s of %s", run, d.Name, filepath.Base(file))
		switch {
		case err != nil && saysWhatToDo(err):
			outcomes[kind+" "+d.Name+": refused"]++
		case err != nil:
			t.Errorf("%s: %v; want what to do", what, err)
		case !slices.Equal(got, want):
			t.Errorf("%s: %d of %d objects are as they were, and no error", what, len(got), len(want))
		default:
			outcomes[kind+" "+d.Name+": whole"]++
		}
		testkit.OK(t, os.RemoveAll(dir))
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%4d %s", outcomes[outcome], outcome)
	}
}

func saysWhatToDo(err error) bool {
	return strings.Contains(err.Error(), "restore it from a copy") || strings.Contains(err.Error(), "use the ")
}

// A disk may fail at any operation, read or write, in any way: what was committed is there after a
// restart, and the failure is reported or waited for.
func TestRandomDiskErrors(t *testing.T) {
	outcomes := map[string]int{}
	for run := range testkit.Rounds(*damageRuns, 6) {
		fault := testkit.NewRandomFault(rand.New(rand.NewPCG(52, uint64(run))), 1200)
		outcomes[liveOnFailingDisk(t, run, fault)]++
	}
	t.Log(outcomes)
}

func liveOnFailingDisk(t *testing.T, run int, fault *testkit.RandomFault) string {
	mem := vfs.NewCrashableMem()
	fatal, ended := make(chan error, 1), make(chan string, 1)
	acked := committed{versions: map[resource.Key]string{}}
	go func() { // it may never come back
		ended <- acked.live(t, statedb.Options{
			Dir: "state", FS: faulty{errorfs.Wrap(mem, fault)}, CacheBytes: 1 << 20, MemTableBytes: 64 << 10,
			Fatal: func(err error) { fatal <- err },
		})
	}()
	outcome := "STUCK"
	select {
	case outcome = <-ended:
	case err := <-fatal:
		outcome = "ends"
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("reported: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("run %d with %v: it neither ends nor continues", run, fault.Err)
	}
	acked.mu.Lock()
	after := &unwell{t: t, disk: &faults{}, acked: maps.Clone(acked.versions)}
	acked.mu.Unlock()
	after.open(mem.CrashClone(vfs.CrashCloneCfg{}))
	after.check(fmt.Sprintf("run %d, %s with %v", run, outcome, fault.Err))
	testkit.OK(t, after.Close())
	return outcome
}

// committed is what a life has committed.
type committed struct {
	mu       sync.Mutex
	versions map[resource.Key]string // guarded by mu
}

// live commits a number of times, and returns how that ended.
func (c *committed) live(t *testing.T, o statedb.Options) string {
	db, err := store.Open(o)
	if err != nil {
		return "refused at the start"
	}
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	u := &unwell{t: t, DB: db, ix: ix, acked: map[resource.Key]string{}}
	for i := 0; i < 150 && err == nil; i++ {
		err = u.commit()
		c.mu.Lock()
		maps.Copy(c.versions, u.acked)
		c.mu.Unlock()
	}
	switch {
	case errors.Is(err, statedb.ErrUnavailable):
		return "waits"
	case err != nil:
		return "an error"
	default:
		return "lives"
	}
}

// A copy of a database that is written meanwhile has all that was committed before the copy began.
func TestCopyWhileWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	db, err := store.Open(statedb.Options{Dir: dir, MemTableBytes: 64 << 10})
	testkit.OK(t, err)
	ix := newIndexer(t, db)
	written, stop := make(chan int), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 0; ; n++ {
			name := fmt.Sprint("p", n%120)
			settle(t, db, ix, "", map[resource.Key]store.NewState{
				resource.Key("shop/" + name): live(pod(t, name, fmt.Sprint(100+n), fmt.Sprintf(`,"x":"%x"`, noise(n))), uint64(n+1)),
			})
			select {
			case <-stop:
				return
			case written <- n:
			default:
			}
		}
	})
	for i := range 4 {
		last := <-written
		to := filepath.Join(t.TempDir(), "new", "copy")
		n, err := statedb.Copy(t.Context(), dir, to)
		if err != nil || n == 0 {
			t.Fatalf("%d keys, %v", n, err)
		}
		got, err := readState(to)
		testkit.OK(t, err)
		newest := -1
		for _, item := range got {
			_, version, _ := strings.Cut(item, "@")
			var n int
			_, err := fmt.Sscan(version, &n)
			testkit.OK(t, err)
			newest = max(newest, n-100)
		}
		if newest < last || len(got) != min(newest+1, 120) {
			t.Errorf("copy %d has %d objects, the newest of %d; %d was committed before it", i, len(got), newest, last)
		}
		if _, err := statedb.Copy(t.Context(), dir, to); err == nil || !strings.Contains(err.Error(), "exists; nothing was changed") {
			t.Errorf("over another: %v", err)
		}
	}
	close(stop)
	writer.Wait()
	testkit.OK(t, db.Close())
	if _, err := statedb.Copy(t.Context(), filepath.Join(dir, "none"), filepath.Join(dir, "to")); !errors.Is(err, statedb.ErrNoState) {
		t.Errorf("of nothing: %v", err)
	}
}
