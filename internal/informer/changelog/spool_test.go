package changelog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// shared commits several logs, and counts the commits.
type shared struct {
	mu      sync.Mutex
	db      *store.DB
	logs    []*changelog.Log
	commits int
	during  func() // a commit; nil for nothing
	err     error  // of each commit; nil for none
}

func (s *shared) setErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *shared) setDuring(during func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.during = during
}

func (s *shared) Changed() {}
func (s *shared) Wake()    {}

func (s *shared) Commit() error {
	s.mu.Lock()
	during := s.during
	s.mu.Unlock()
	if during != nil {
		during()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	batch := s.db.NewBatch()
	checkpoints := make([]*changelog.Checkpoint, len(s.logs))
	for i, l := range s.logs {
		checkpoints[i] = l.Checkpoint()
		checkpoints[i].Write(batch)
	}
	err := s.err
	if err == nil {
		err = batch.Commit()
	}
	for i, l := range s.logs {
		l.Committed(checkpoints[i], err)
	}
	return err
}

// openShared opens logs that one Spooler spools after 5 s, until the test ends.
func openShared(t *testing.T, n int, options ...func(n int, c *changelog.Config)) (*shared, []*rig) {
	return openSharedIn(t, openDB(t), n, options...)
}

func openSharedIn(
	t *testing.T, db *store.DB, n int, options ...func(n int, c *changelog.Config),
) (*shared, []*rig) {
	s := &shared{db: db}
	spooler := changelog.NewSpooler(5 * time.Second)
	rigs := make([]*rig, n)
	for i := range rigs {
		rigs[i] = open(t, s.db, fmt.Sprint("log-", i), func(c *changelog.Config) {
			c.Committer, c.Spooler = s, spooler
			for _, option := range options {
				option(i, c)
			}
		})
		s.logs = append(s.logs, rigs[i].Log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- spooler.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.OK(t, <-ended)
	})
	return s, rigs
}

func (r *rig) appendNew(name string, version int) {
	e := r.entry(name, version, 0b11)
	r.Rank([]*changelog.Entry{e}, changelog.Mark{})
	r.Append([]*changelog.Entry{e})
}

func TestSpooler(t *testing.T) {
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	run("what is pending for long goes to disk in time, also when the log was empty before", func(t *testing.T) {
		_, rigs := openShared(t, 1)
		r := rigs[0]
		for n := range 3 {
			time.Sleep(time.Hour)
			before := r.Status().DiskBytes
			r.appendNew("a", 10+n)
			if time.Sleep(4 * time.Second); r.Status().DiskBytes != before {
				t.Fatal("on disk after 4 s")
			}
			if time.Sleep(3 * time.Second); r.Status().DiskBytes == before {
				t.Fatalf("change %d is not on disk after 7 s", n)
			}
		}
	})
	run("what is old in several logs goes to disk with one commit", func(t *testing.T) {
		s, rigs := openShared(t, 20)
		for _, r := range rigs {
			r.appendNew("a", 10)
		}
		time.Sleep(7 * time.Second)
		for _, r := range rigs {
			if r.Status().DiskBytes == 0 {
				t.Fatalf("%s is not on disk", r.name)
			}
		}
		if s.commits != 1 {
			t.Errorf("%d commits, want 1", s.commits)
		}
	})
	run("a log that may not go to disk does not hold up another", func(t *testing.T) {
		_, rigs := openShared(t, 3, func(n int, c *changelog.Config) {
			if n == 0 {
				c.SpoolBytes = 1
			}
		})
		for v := range 3 {
			for _, r := range rigs {
				r.appendNew("a", 10+v)
			}
			time.Sleep(7 * time.Second)
		}
		if full := rigs[0].Status(); !full.DiskFull || full.Unsettled != 2 {
			t.Errorf("the full log has %+v, want the first change on disk", full)
		}
		for _, r := range rigs[1:] {
			if got := r.Status().Unsettled; got != 0 {
				t.Errorf("%s: %d changes are not on disk", r.name, got)
			}
		}
	})
	run("a log that another goroutine spools does not hold up another", func(t *testing.T) {
		s, rigs := openShared(t, 2)
		release := make(chan struct{})
		for _, r := range rigs {
			r.appendNew("a", 10)
		}
		s.setDuring(func() { <-release })
		go func() { testkit.OK(t, rigs[0].Spool(t.Context(), time.Now())) }()
		synctest.Wait()
		time.Sleep(7 * time.Second)
		if rigs[1].Status().Unsettled != 0 {
			t.Error("the other log is not staged")
		}
		close(release)
		synctest.Wait()
	})
	run("EndSpooling waits for a commit that has some of the log", func(t *testing.T) {
		s, rigs := openShared(t, 1)
		release, ended := make(chan struct{}), false
		rigs[0].appendNew("a", 10)
		s.setDuring(func() { <-release })
		time.Sleep(7 * time.Second)
		go func() {
			rigs[0].EndSpooling()
			ended = true
		}()
		if synctest.Wait(); ended {
			t.Fatal("it has ended during the commit")
		}
		close(release)
		if synctest.Wait(); !ended {
			t.Fatal("it has not ended behind the commit")
		}
		rigs[0].EndSpooling()
	})
	run("what is pending goes to disk soon after space is freed there", func(t *testing.T) {
		db, free := openNarrow(t)
		free.Store(1 << 20)
		_, rigs := openSharedIn(t, db, 1, func(_ int, c *changelog.Config) { c.MemoryBytes = 1 << 20 })
		testkit.OK(t, db.NewBatch().Commit()) // looks at the disk
		rigs[0].appendNew("a", 10)
		if time.Sleep(time.Hour); rigs[0].Status().Unsettled == 0 {
			t.Fatal("it is on a disk that is nearly full")
		}
		free.Store(1 << 29)
		if time.Sleep(3 * time.Second); rigs[0].Status().Unsettled > 0 {
			t.Error("it is not on disk")
		}
	})
	run("nothing is forgotten, however appends and acks fall", func(t *testing.T) {
		_, rigs := openShared(t, 3)
		var all sync.WaitGroup
		for _, r := range rigs {
			all.Go(func() {
				for v := range 200 {
					r.appendNew("a", 10+v)
					time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
					if rand.IntN(2) == 0 {
						for n := range 2 {
							for _, e := range r.read(n, 1000) {
								r.Cursor(n).Ack([]changelog.Ack{{At: e.Position}})
							}
						}
					}
				}
			})
		}
		all.Wait()
		time.Sleep(7 * time.Second)
		for _, r := range rigs {
			if got := r.Status().Unsettled; got != 0 {
				t.Errorf("%s: %d changes are neither acked nor on disk", r.name, got)
			}
		}
	})
}

// openNarrow opens a database on a disk that is half empty.
func openNarrow(t *testing.T) (*store.DB, *atomic.Uint64) {
	t.Helper()
	disk := &testkit.NarrowDisk{FS: vfs.NewMem()}
	disk.Free.Store(1 << 29)
	db, err := store.Open(statedb.Options{Dir: "state", FS: disk})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	return db, &disk.Free
}

// Whoever waits for room has it as soon as there is some, also when memory holds nothing any more
// that the Spooler would look after.
func TestRoomAfterSpooling(t *testing.T) {
	waits := func(t *testing.T, r *rig) *atomic.Bool {
		has := &atomic.Bool{}
		go func() {
			testkit.OK(t, r.Room(t.Context()))
			has.Store(true)
		}()
		if time.Sleep(time.Hour); has.Load() {
			t.Fatal("it does not wait")
		}
		return has
	}
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	run("space is freed on disk after a shared budget has become smaller", func(t *testing.T) {
		db, free := openNarrow(t)
		shares := ratelimit.NewBudget(2 << 20)
		s, rigs := openSharedIn(t, db, 1, func(_ int, c *changelog.Config) {
			c.MemoryBytes, c.Account = 1<<20, shares.Account()
		})
		r := rigs[0]
		for n := range 100 {
			r.appendNew("a", 10+n)
		}
		time.Sleep(7 * time.Second)
		if s := r.Status(); s.Unsettled > 0 || s.Entries == 0 {
			t.Fatalf("%+v, want all in memory and on disk", s)
		}
		free.Store(1 << 20)
		testkit.OK(t, s.Commit())
		for range 1000 { // of which each has a small part
			shares.Account().Set(2 << 10)
		}
		has := waits(t, r)
		free.Store(1 << 29)
		if time.Sleep(3 * time.Second); !has.Load() {
			t.Error("it still waits, and there is space")
		}
	})
	run("the commit of what was spooled has failed", func(t *testing.T) {
		s, rigs := openShared(t, 1)
		r := rigs[0]
		s.setErr(fmt.Errorf("the disk is full: %w", statedb.ErrUnavailable))
		r.appendNew("a", 10) // more than the bound
		has := waits(t, r)
		s.setErr(nil)
		testkit.OK(t, s.Commit()) // the committer's next try
		if time.Sleep(3 * time.Second); !has.Load() {
			t.Error("it still waits, and all is on disk")
		}
	})
}
