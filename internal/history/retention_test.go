package history_test

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// timed are events of which each is some seconds behind the one before.
func timed(t *testing.T, seed uint64, objects, changes int) []event.Event {
	t.Helper()
	events := testkit.Events(t, seed, objects, changes)
	for i := range events {
		events[i].Time = events[0].Observed.Add(time.Duration(i) * 7 * time.Second)
	}
	return events
}

func TestRetention(t *testing.T) {
	events := timed(t, 21, 20, 60)
	known := model{}
	for i := range events {
		known.add(&events[i])
	}
	newest := events[len(events)-1].Time
	t.Run("behind the horizon everything is there, before it the last versions of what lived", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		_, err := db.Writer.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		random := rand.New(rand.NewPCG(1, 2))
		for _, age := range []time.Duration{time.Hour, 40 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
			testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: age}, newest))
			horizon, err := db.Questions.Coverage.Horizon()
			testkit.OK(t, err)
			if late := newest.Add(-age).Sub(horizon); late < 0 || late > 5*time.Minute {
				t.Fatalf("the horizon is %v, kept are %v up to %v", horizon, age, newest)
			}
			for _, u := range db.Questions.Resources.Units() {
				for o, err := range db.Questions.Objects.All(u, "") {
					testkit.OK(t, err)
					all := known.versions("workloads " + o.String())
					kept := slices.IndexFunc(all, func(e *event.Event) bool { return !e.Time.Before(horizon) })
					if kept < 0 {
						kept = len(all)
					}
					if kept > 0 && all[kept-1].Op != event.Deleted {
						kept--
					}
					compareVersions(t, db, &o, all[kept:], time.Time{}, time.Time{})
					for range 20 {
						at := horizon.Add(time.Duration(random.Int64N(int64(newest.Sub(horizon)))))
						got, err := db.Questions.Objects.At(&o, query.Point{At: at})
						testkit.OK(t, err)
						want := lastUpTo(all, at)
						if want != nil && want.Op == event.Deleted && want.Time.Before(horizon) {
							want = nil // it ended before
						}
						compareVersion(t, got, want)
					}
				}
			}
		}
	})
	t.Run("writers continue, and what they write is right", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		for i := 0; i < len(events); i += 20 {
			n := min(20, len(events)-i)
			_, err := db.Writer.Append(t.Context(), pointers(events[i:i+n]))
			testkit.OK(t, err)
			testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: 15 * time.Minute}, events[i+n-1].Time))
		}
		for _, u := range db.Questions.Resources.Units() {
			for o, err := range db.Questions.Objects.All(u, "") {
				testkit.OK(t, err)
				all := known.versions("workloads " + o.String())
				got, err := db.Questions.Objects.At(&o, query.Point{})
				testkit.OK(t, err)
				compareVersion(t, got, all[len(all)-1])
			}
		}
	})
	ahead := podVersion(0, 1<<40, 0, newest.AddDate(1, 0, 0), "")
	ahead.TimeSource = event.TimeObserved
	for name, more := range map[string][]*event.Event{
		"a directory that is too large loses its oldest part":                         nil,
		"of a time that a wrong clock observed nothing follows for what is too large": {ahead},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDir(t, t.TempDir())
			_, err := db.Writer.Append(t.Context(), append(pointers(events), more...))
			testkit.OK(t, err)
			testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{MaxBytes: 1}, newest))
			horizon, err := db.Questions.Coverage.Horizon()
			testkit.OK(t, err)
			if !horizon.After(events[0].Time) || horizon.After(newest.Add(-newest.Sub(events[0].Time)/2)) {
				t.Errorf("the horizon is %v of %v to %v", horizon, events[0].Time, newest)
			}
		})
	}
	t.Run("what is too large loses something each time, also a short one, and one to which something came late", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		began := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
		end := began.Add(20 * time.Minute)
		for i := range 20 {
			_, err := db.Writer.Append(t.Context(), []*event.Event{podVersion(i, 100+i, 0, began.Add(time.Duration(i)*time.Minute), "")})
			testkit.OK(t, err)
		}
		requireHorizon := func(want time.Time) {
			t.Helper()
			testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{MaxBytes: 1}, end))
			if horizon, err := db.Questions.Coverage.Horizon(); err != nil || !horizon.Equal(want) {
				t.Fatalf("the horizon is %v, %v; want %v", horizon, err, want)
			}
		}
		requireHorizon(began.Add(5 * time.Minute))
		_, err := db.Writer.Append(t.Context(), []*event.Event{podVersion(99, 50, 0, began.Add(-24*time.Hour), "")})
		testkit.OK(t, err)
		requireHorizon(began.Add(10 * time.Minute))
		requireHorizon(began.Add(15 * time.Minute))
		requireHorizon(began.Add(15 * time.Minute)) // the last bucket stays
	})
	t.Run("while no time is known nothing is removed", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		_, err := db.Writer.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: time.Minute, MaxBytes: 1}, time.Time{}))
		if horizon, err := db.Questions.Coverage.Horizon(); err != nil || !horizon.IsZero() {
			t.Errorf("the horizon is %v, %v", horizon, err)
		}
	})
	t.Run("what is young loses nothing, and has no horizon", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: time.Hour}, newest))
		_, err := db.Writer.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: 24 * time.Hour}, newest))
		if horizon, err := db.Questions.Coverage.Horizon(); err != nil || !horizon.IsZero() {
			t.Errorf("the horizon is %v, %v", horizon, err)
		}
	})
}

// A process that is killed while old versions are removed leaves a history that answers as before
// behind the horizon, and the next one continues.
func TestRetentionKilled(t *testing.T) {
	events := timed(t, 23, 40, 40)
	known := model{}
	for i := range events {
		known.add(&events[i])
	}
	newest := events[len(events)-1].Time
	age := history.Retention{Age: newest.Sub(events[0].Time) / 3}
	write := func(files vfs.FS) (*history.DB, func() uint64) {
		counted := &countedFS{FS: files}
		db, err := history.Open(history.Options{Dir: "history", FS: counted, MemTableBytes: 64 << 10, LastVersionsBytes: 30_000})
		testkit.OK(t, err)
		return db, counted.writes.Load
	}
	// How many writes retention makes is found by one run without a kill.
	files := vfs.NewCrashableMem()
	db, writes := write(files)
	_, err := db.Writer.Append(t.Context(), pointers(events))
	testkit.OK(t, err)
	before := writes()
	testkit.OK(t, db.Maintenance.Retain(t.Context(), age, newest))
	total := writes() - before
	testkit.OK(t, db.Close())
	if total < 5 {
		t.Fatalf("only %d writes: there is nothing to kill", total)
	}
	random := rand.New(rand.NewPCG(3, 4))
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		files := vfs.NewCrashableMem()
		counted := &countedFS{FS: files}
		db, err := history.Open(history.Options{Dir: "history", FS: counted, MemTableBytes: 64 << 10, LastVersionsBytes: 30_000})
		testkit.OK(t, err)
		_, err = db.Writer.Append(t.Context(), pointers(events))
		testkit.OK(t, err)
		var crashed *vfs.MemFS
		counted.at(counted.writes.Load()+1+random.Uint64N(total), func() {
			crashed = files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: rand.New(rand.NewPCG(uint64(round), 5))})
		})
		testkit.OK(t, db.Maintenance.Retain(t.Context(), age, newest))
		testkit.OK(t, db.Close())
		if crashed == nil {
			continue // this run made fewer writes
		}
		db, err = history.Open(history.Options{Dir: "history", FS: crashed, MemTableBytes: 64 << 10})
		testkit.OK(t, err)
		for range 2 { // as the kill left it, and after the next pass
			requireKept(t, db, known, random, newest)
			testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: age.Age - 5*time.Minute}, newest))
		}
		testkit.OK(t, db.Close())
	}
}

// requireKept compares what lies behind the horizon.
func requireKept(t *testing.T, db *history.DB, known model, random *rand.Rand, newest time.Time) {
	t.Helper()
	horizon, err := db.Questions.Coverage.Horizon()
	testkit.OK(t, err)
	if horizon.IsZero() {
		horizon = newest.Add(-time.Hour)
	}
	for object := range known {
		all := known.versions(object)
		o := &query.Object{Namespace: all[0].Namespace, Name: all[0].Name}
		for _, u := range db.Questions.Resources.Units() {
			if u.Resource == all[0].Resource {
				o.Unit = u
			}
		}
		for range 2 {
			at := horizon.Add(time.Duration(random.Int64N(int64(newest.Sub(horizon)))))
			got, err := db.Questions.Objects.At(o, query.Point{At: at})
			testkit.OK(t, err)
			want := lastUpTo(all, at)
			if want != nil && want.Op == event.Deleted && got == nil {
				want = nil // it ended before the horizon
			}
			compareVersion(t, got, want)
		}
	}
}

// countedFS counts writes to files, of compactions too, and does something before one of them.
type countedFS struct {
	vfs.FS
	writes atomic.Uint64
	plan   atomic.Pointer[plan]
}

type plan struct {
	write uint64 // before which it is done
	do    func()
}

// at does something before a write, which must come later.
func (f *countedFS) at(write uint64, do func()) { f.plan.Store(&plan{write, do}) }

func (f *countedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	return &countedFile{file, f}, err
}

type countedFile struct {
	vfs.File
	fs *countedFS
}

func (f *countedFile) Write(p []byte) (int, error) {
	if plan, n := f.fs.plan.Load(), f.fs.writes.Add(1); plan != nil && plan.write == n {
		plan.do()
	}
	return f.File.Write(p)
}

// Without maxBytes a history takes half of its volume, and less when the volume is nearly full: old
// versions go before the state directory has no room.
func TestRetentionOfNarrowVolume(t *testing.T) {
	disk := &testkit.NarrowDisk{FS: vfs.NewMem()}
	disk.Free.Store(1 << 30)
	db, err := history.Open(history.Options{Dir: "history", FS: disk})
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	events := timed(t, 21, 20, 60)
	_, err = db.Writer.Append(t.Context(), pointers(events))
	testkit.OK(t, err)
	newest := events[len(events)-1].Time
	retention := history.Retention{MaxBytes: 2 * db.Maintenance.DiskBytes()}
	horizon := func() time.Time {
		testkit.OK(t, db.Maintenance.Retain(t.Context(), retention, newest))
		h, err := db.Questions.Coverage.Horizon()
		testkit.OK(t, err)
		return h
	}
	if h := horizon(); !h.IsZero() {
		t.Errorf("with room the horizon is %v", h)
	}
	disk.Free.Store(100 << 20)
	first := horizon()
	if first.IsZero() || !horizon().After(first) {
		t.Errorf("without room the horizon is %v, and does not move", first)
	}
	disk.Free.Store(1 << 30)
	retention.MaxBytes = 0
	if before := horizon(); !horizon().Equal(before) {
		t.Error("with room again the horizon moves")
	}
}
