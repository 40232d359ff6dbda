package bridge_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

var crashPoints = flag.Int("bridge.crash.points", 20, "how many of the operations on the disk the process dies at, evenly spread; 0 for each, in each way")

// TestCrashPoints lets the process die before the n-th write, sync,
// creation, renaming or removal of a file in a short life that has all in it: a snapshot, changes,
// two sinks that are unavailable so that changes go to disk, one of which wants the newest states
// only, a stop and a start, a relist; flushes, compactions and new lists of files. What was not
// synced is lost, or half of its blocks, or none, or half of the write that was under way has come
// to the disk. It then starts again from what is left, lives on to the end, and what the sinks have
// is compared with what the server did: nothing is missing, nothing is out of order, and again
// comes only what was not committed, with the same id.
func TestCrashPoints(t *testing.T) {
	total := 0
	synctest.Test(t, func(t *testing.T) {
		c := newCrash(t, 0, 0)
		c.live()
		total = c.count
		t.Logf("of the operations on the disk are: %v", c.kinds)
	})
	if total < 200 {
		t.Fatalf("a life has only %d operations on the disk", total)
	}
	every := 1
	points := *crashPoints
	if points > 0 {
		points = testkit.Rounds(points, 5)
		every = max(1, total/points)
	}
	tried, hit := 0, map[string]int{}
	for n := 1; n <= total && !t.Failed(); n += every {
		ways := []int{0, 50, 100, torn}
		if points > 0 {
			ways = ways[n/every%4:][:1]
		}
		for _, percent := range ways {
			t.Run(fmt.Sprintf("operation %d, %d %% of what was not synced stays", n, percent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCrash(t, n, percent)
					c.live()
					if c.died {
						tried++
						hit[c.where]++
					}
				})
			})
		}
	}
	t.Logf("the process died at %d of about %d operations on the disk: %v", tried, total, hit)
}

// torn is, in place of how many percent of what was not synced stay: all of it, and half of the
// write that was under way.
const torn = -1

// crash is a life that ends once, at an operation on the disk.
type crash struct {
	*model
	at      int // 0 for never
	percent int
	died    bool   // and was started again
	where   string // what it died at
	kept    int64  // the watermark that was said to be committed before it died

	mu      sync.Mutex
	tearing bool           // guarded by mu: the next write is torn
	count   int            // guarded by mu: operations so far
	kinds   map[string]int // guarded by mu: of the operations
	clone   *vfs.MemFS     // guarded by mu: what the crash left
}

func newCrash(t *testing.T, at, percent int) *crash {
	rng := rand.New(rand.NewPCG(7, 0))
	m := &model{t: t, rng: rng, fs: vfs.NewCrashableMem(), tables: 16 << 10, causes: map[string]int{}, commit: 100 * time.Millisecond}
	m.cluster = newCluster(t, pods, rng, 6)
	for i := range 3 {
		b := testkit.NewBroker(t, fmt.Sprint("sink", i), sinks.ByObject)
		b.Seed, b.Bounds = 7, sinks.Limits{Messages: 5, Concurrency: 2}
		m.brokers = append(m.brokers, b)
	}
	m.configure(pods)
	m.commit, m.retry = 100*time.Millisecond, publisher.Config{Retry: publisher.Retry{Initial: 10 * time.Millisecond, Max: time.Second}}
	m.unit = informer.Config{Informer: "all", Type: pods, Queue: informer.Queue{Memory: 16 << 10}, Sinks: m.unit.Sinks, Reflector: m.unit.Reflector}
	m.noLatest()
	m.noResync()
	m.unit.Sinks[2].Latest = true
	m.unit.Reflector.PageSize, m.unit.Reflector.DisableWatchList = 3, true
	m.features = testkit.Features{}
	c := &crash{model: m, at: at, percent: percent, kinds: map[string]int{}}
	m.disk = func(fs vfs.FS) vfs.FS {
		return counted{errorfs.Wrap(tearable{fs, c}, errorfs.InjectorFunc(c.before)), c}
	}
	return c
}

// before is called before each operation on the disk.
func (c *crash) before(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpFilePreallocate {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.kinds[sort(op)]++
	if c.count != c.at {
		return nil
	}
	c.where = sort(op)
	if c.percent == torn && op.Kind == errorfs.OpFileWrite {
		c.tearing = true
		c.where += ", torn"
		return nil
	}
	c.dieLocked()
	return nil
}

func (c *crash) dieLocked() {
	if l := c.running.Load(); l != nil {
		l.kill()
	}
	percent := c.percent
	if percent == torn {
		percent = 100
	}
	c.clone = c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(c.at), 0))})
}

// tear is called for each write, and dies when half of it is written, if it is the one.
func (c *crash) tear(p []byte, write func([]byte) (int, error)) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tearing {
		return write(p)
	}
	c.tearing = false
	n, err := write(p[:len(p)/2])
	c.dieLocked()
	if err != nil {
		return n, err
	}
	rest, err := write(p[n:])
	return n + rest, err
}

// counted is a disk that counts what is done to recycled files too.
type counted struct {
	*errorfs.FS
	crash *crash
}

func (d counted) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.FS.ReuseForWrite(oldName, newName, category)
	return errorfs.WrapFile(file, errorfs.InjectorFunc(func(op errorfs.Op) error {
		op.Path = newName
		return d.crash.before(op)
	})), err
}

// tearable is a disk with files whose writes may be torn.
type tearable struct {
	vfs.FS
	crash *crash
}

type tearableFile struct {
	vfs.File
	crash *crash
}

func (f tearableFile) Write(p []byte) (int, error) { return f.crash.tear(p, f.File.Write) }

func (d tearable) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.FS.Create(name, category)
	return tearableFile{file, d.crash}, err
}

func (d tearable) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.FS.ReuseForWrite(oldName, newName, category)
	return tearableFile{file, d.crash}, err
}

// sort is the sort of an operation, for the report.
func sort(op errorfs.Op) string {
	base := path.Base(op.Path)
	switch {
	case path.Ext(base) != "" && !strings.HasPrefix(base, "marker"):
		base = path.Ext(base)
	default:
		base, _, _ = strings.Cut(base, "-")
		base, _, _ = strings.Cut(base, ".")
	}
	kind := map[errorfs.OpKind]string{
		errorfs.OpCreate: "create", errorfs.OpRemove: "remove", errorfs.OpRename: "rename", errorfs.OpReuseForWrite: "reuse",
		errorfs.OpFileWrite: "write", errorfs.OpFileWriteAt: "write", errorfs.OpFileSync: "sync", errorfs.OpFileSyncData: "sync", errorfs.OpFileSyncTo: "sync",
	}[op.Kind]
	return kind + " " + base
}

// left is what the crash left, nil while it has not happened, or is over.
func (c *crash) left() *vfs.MemFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clone
}

// live is the whole life.
func (c *crash) live() {
	defer c.report()
	for _, step := range c.steps() {
		step()
		synctest.Wait()
		if c.life != nil && !c.died {
			if kept := c.watermark(); c.left() == nil { // else it may be that of the dead
				c.kept = kept
			}
		}
		c.rise()
		if c.t.Failed() {
			return
		}
	}
	c.heal()
	c.rise() // it may die while it catches up
	c.heal()
	c.judge()
}

// rise starts again after the crash.
func (c *crash) rise() {
	left := c.left()
	if left == nil {
		return
	}
	c.note("crash before operation %d on the disk: %s", c.at, c.where)
	if c.life != nil {
		c.end()
	}
	c.mu.Lock()
	c.fs, c.clone, c.died = left, nil, true
	c.mu.Unlock()
	c.start()
	if found := c.states[len(c.states)-1].watermark; found < c.kept {
		c.t.Errorf("after the crash the watermark is %d; %d was committed", found, c.kept)
	}
	time.Sleep(time.Second)
}

func (c *crash) steps() []func() {
	sleep := func(d time.Duration) func() { return func() { time.Sleep(d) } }
	write := func(n int) func() {
		return func() {
			for range n {
				c.note("%s", c.cluster.change())
			}
		}
	}
	again := func() {
		if c.life == nil { // else it has died while it stopped, and runs again
			c.start()
		}
	}
	both := func(condition testkit.Condition) func() {
		return func() {
			c.brokers[1].Set(condition)
			c.brokers[2].Set(condition)
		}
	}
	return []func(){
		write(10), c.start, sleep(time.Second),
		write(5), sleep(150 * time.Millisecond), write(5), sleep(time.Second),
		func() { c.note("%s", c.cluster.removeSome()) }, sleep(time.Second),
		both(testkit.Unreachable), write(60), sleep(7 * time.Second), write(100), sleep(7 * time.Second),
		c.stopLife, write(5), again, sleep(time.Second), write(5), sleep(7 * time.Second),
		both(testkit.Healthy), sleep(3 * time.Second), write(60), sleep(time.Second), write(60), sleep(time.Second),
		func() { c.note("%s", c.cluster.expire()) }, write(3), func() { c.note("%s", c.cluster.expire()); c.cluster.Streams.Cut() },
		sleep(3 * time.Second), write(60), sleep(time.Second), write(60), sleep(time.Second), c.cluster.Streams.Bookmark, sleep(time.Second),
		func() { c.note("%s", c.cluster.put(resource.MakeKey("ns0", "o0"))) }, sleep(time.Second),
	}
}
