package store_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// lagging is a database with a budget of one body a second, on a disk that may be full, and what
// was settled and is not committed.
type lagging struct {
	t    *testing.T
	rng  *rand.Rand
	fs   *vfs.MemFS
	disk *faults
	db   *store.DB
	ix   *store.Indexer
	seq  uint64

	settled map[resource.Key]store.NewState
	bodies  []store.Body
	newest  map[resource.Key]*resource.Object // nil when deleted
	// doubt are those of a commit that failed and may have been written yet: with its bodies,
	// though the next one left them.
	doubt map[resource.Key]bool
}

func newLagging(t *testing.T, seed uint64) *lagging {
	l := &lagging{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: vfs.NewCrashableMem(), disk: &faults{},
		settled: map[resource.Key]store.NewState{}, newest: map[resource.Key]*resource.Object{}, doubt: map[resource.Key]bool{},
	}
	l.open()
	return l
}

func (l *lagging) open() {
	var err error
	l.db, err = store.Open(statedb.Options{
		Dir: "state", FS: faulty{errorfs.Wrap(l.fs, l.disk)},
		Fatal: func(err error) { l.t.Errorf("the database can't continue: %v", err) },
	})
	testkit.OK(l.t, err)
	l.db.SetBodiesPerSecond(1)
	l.ix, err = l.db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	testkit.OK(l.t, err)
}

// change settles the next state of an object.
func (l *lagging) change(name string) {
	key := resource.MakeKey("shop", name)
	l.seq++
	version := resource.Version(fmt.Sprint(100 + l.seq))
	before := l.newest[key]
	if before != nil && l.rng.IntN(6) == 0 {
		l.settled[key], l.newest[key] = dead(before, version, l.seq), nil
		l.ix.Update(key, l.settled[key])
		return
	}
	uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", l.seq)
	if before != nil {
		uid = before.UID
	} else if l.rng.IntN(4) == 0 {
		uid = "odd-" + uid
	}
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q}}`, name, uid, version)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(l.t, err)
	l.settled[key], l.newest[key] = live(obj, l.seq), obj
	l.ix.Update(key, l.settled[key])
}

// read has some objects that are behind read from the API server, which has them in their newest
// states.
func (l *lagging) read() {
	keys, err := l.ix.StaleBodies().From("", 100)
	testkit.OK(l.t, err)
	for _, key := range keys {
		if obj := l.newest[key]; obj != nil && l.rng.IntN(2) == 0 {
			l.bodies = append(l.bodies, store.Body{Key: key, Object: obj})
		}
	}
}

// commit writes what is settled; after a failure it is to be written again.
func (l *lagging) commit() error {
	batch := l.db.NewBatch()
	for _, body := range l.bodies {
		batch.RefreshBody(l.ix, body)
	}
	for key, s := range l.settled {
		batch.Settle(l.ix, key, s)
	}
	if err := batch.Commit(); err != nil {
		for key := range l.settled {
			l.doubt[key] = true
		}
		return err
	}
	l.ix.Forget(l.settled)
	clear(l.settled)
	l.bodies = nil
	return nil
}

// restart begins again with what a crash leaves.
func (l *lagging) restart(crash bool) {
	after := l.fs
	if crash {
		after = l.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: l.rng.IntN(101), RNG: l.rng})
	}
	testkit.OK(l.t, l.db.Close())
	l.fs = after
	l.open()
	for key, s := range l.settled { // the watch reports them again
		l.ix.Update(key, s)
	}
	l.bodies = nil
}

// check compares what is said to be behind with the bodies that are there. An object that is not
// noted would never be found.
func (l *lagging) check(what string) {
	l.t.Helper()
	noted := map[resource.Key]bool{}
	keys, err := l.ix.StaleBodies().From("", 1000)
	testkit.OK(l.t, err)
	for _, key := range keys {
		noted[key] = true
	}
	for key := range l.newest {
		s, found, err := l.ix.Stored(key)
		testkit.OK(l.t, err)
		isStale := found && !s.Deleted && !strings.Contains(string(s.Body), fmt.Sprintf(`"resourceVersion":%q`, s.Version))
		if !noted[key] {
			delete(l.doubt, key)
		}
		if isStale != noted[key] && (isStale || !l.doubt[key]) {
			l.t.Errorf("%s: %s is behind: %v, but noted: %v", what, key, isStale, noted[key])
		}
		if found && !s.Deleted && !strings.Contains(string(s.Body), fmt.Sprintf(`"uid":%q`, s.UID)) {
			l.t.Errorf("%s: %s has the body of another object", what, key)
		}
	}
	if n := l.ix.StaleBodies().Count(); n != len(noted) {
		l.t.Errorf("%s: %d are said to be behind, %d are noted", what, n, len(noted))
	}
}

// step does one thing at random.
func (l *lagging) step() (what string) {
	for range 1 + l.rng.IntN(6) {
		l.change(fmt.Sprint("p", l.rng.IntN(8)))
	}
	switch n := l.rng.IntN(12); {
	case n == 0:
		l.restart(false)
		what = "restart"
	case n == 1:
		l.restart(true)
		what = "crash"
	case n < 4:
		what = "full disk"
		l.disk.set(syscall.ENOSPC, on("*.log"))
		if err := l.commit(); err != nil {
			for range l.rng.IntN(4) { // and more comes, before the disk is well
				l.change(fmt.Sprint("p", l.rng.IntN(8)))
			}
		}
		l.disk.set(nil, nil)
	default:
		l.read()
		for range l.rng.IntN(4) { // after it was read
			l.change(fmt.Sprint("p", l.rng.IntN(8)))
		}
		what = "commit"
	}
	for l.commit() != nil {
		time.Sleep(time.Second)
	}
	return what
}

// Which objects are stale is recorded, whatever happens.
func TestStaleBodies(t *testing.T) {
	behind := 0
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			l := newLagging(t, seed)
			for n := range 60 {
				l.check(fmt.Sprintf("seed %d, step %d, %s", seed, n, l.step()))
				behind += l.ix.StaleBodies().Count()
				if t.Failed() {
					break
				}
			}
			// in the end all can be brought up to date
			for len(l.newest) > 0 && l.ix.StaleBodies().Count() > 0 && !t.Failed() {
				before := maps.Clone(l.newest)
				l.read()
				testkit.OK(t, l.commit())
				l.check("at the end")
				l.newest = before
			}
			testkit.OK(t, l.db.Close())
		})
	}
	if behind < 1000 {
		t.Errorf("only %d were behind: this shows nothing", behind)
	}
}
