package table

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/iceberg-go"
	lib "github.com/apache/iceberg-go/table"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// timed are events that changed one a second from a time on.
func timed(events []event.Event, from time.Time) []event.Event {
	for i := range events {
		events[i].Time = from.Add(time.Duration(i) * time.Second)
	}
	return events
}

var morning = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// living are the ids of the newest event of each object that lives after events.
func living(events []event.Event) (ids []string) {
	last := map[string]event.Event{}
	for _, e := range events {
		if e.Name == "" {
			continue
		}
		last[e.PartitionKey] = e
		if e.Op == event.Deleted {
			delete(last, e.PartitionKey)
		}
	}
	for _, e := range last {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

// After midnight the last row of every living object is there again, also of objects whose rows
// came after the midnight before.
func TestSnapshotRows(t *testing.T) {
	events := timed(testkit.Events(t, 7, 40, 10), morning)
	first := morning.Truncate(day)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	for i, half := range [][]event.Event{events[:len(events)/2], events[len(events)/2:]} {
		store(half)
		o := options(t, url+"/K8S", dir)
		midnight := first.Add(time.Duration(i+1) * day)
		o.now = func() time.Time { return midnight.Add(10 * time.Minute) }
		_, err := Run(t.Context(), o)
		testkit.OK(t, err)
		filter := iceberg.NewAnd(iceberg.EqualTo(iceberg.Reference(colSnapshot), true),
			iceberg.EqualTo(iceberg.Reference(colTime), iceberg.Timestamp(midnight.UnixMicro())))
		want := living(events[:len(events)/2])
		if i == 1 {
			want = living(events)
		}
		if got := column(t, openTest(t, dir), filter, "id"); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s: %d rows, want %d", midnight, len(got), len(want))
		}
		report, err := Run(t.Context(), o)
		testkit.OK(t, err)
		if report.Snapshot != 0 {
			t.Errorf("%d more rows", report.Snapshot)
		}
	}
	late := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference(colLate), true), "id")
	if len(late) != len(events)-len(events)/2 {
		t.Errorf("%d rows are late", len(late))
	}
}

// upkeep is Maintain with its report.
func upkeep(t *testing.T, dir string, u Upkeep) string {
	t.Helper()
	var report strings.Builder
	u.Place = placeOf(dir)
	u.Orphans = max(u.Orphans, MinOrphans)
	u.Report = func(format string, args ...any) { fmt.Fprintf(&report, format, args...) }
	testkit.OK(t, Maintain(t.Context(), u))
	t.Log(report.String())
	return report.String()
}

// A writer resumes where it was behind compaction and expiry, and no row is lost or comes twice.
func TestMaintain(t *testing.T) {
	events := timed(testkit.Events(t, 7, 10, 6), morning)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	files := func() int {
		l := openTest(t, dir)
		list, err := l.files(t.Context(), iceberg.AlwaysTrue{})
		testkit.OK(t, err)
		return len(list)
	}
	run := func(events []event.Event) {
		t.Helper()
		store(events)
		o := options(t, url+"/K8S", dir)
		o.Interval = time.Nanosecond
		report, err := Run(t.Context(), o)
		testkit.OK(t, err)
		if report.Messages != len(events) {
			t.Errorf("%d messages were read, want %d", report.Messages, len(events))
		}
	}
	run(events[:30])
	before := files()
	t.Run("a dry run changes nothing", func(t *testing.T) {
		if out := upkeep(t, dir, Upkeep{DryRun: true}); !strings.Contains(out, "compact: 2026-11-21: ") || files() != before {
			t.Errorf("%s%d files, before %d", out, files(), before)
		}
	})
	t.Run("compaction", func(t *testing.T) {
		upkeep(t, dir, Upkeep{Only: []string{"compact"}, Snapshots: day})
		if now := files(); now >= 5 {
			t.Errorf("%d files, before %d", now, before)
		}
		requireRows(t, dir, events[:30])
		run(events[30:50])
		requireRows(t, dir, events[:50])
	})
	t.Run("expiry of all snapshots but that of a compaction", func(t *testing.T) {
		upkeep(t, dir, Upkeep{Only: []string{"compact"}, Snapshots: day})
		upkeep(t, dir, Upkeep{Only: []string{"expire"}, Snapshots: 0})
		l := openTest(t, dir)
		if n := len(l.Metadata().Snapshots()); n != 1 {
			t.Errorf("%d snapshots", n)
		}
		if _, found := l.Properties()[keyPosition]; !found {
			t.Error("the position is no property")
		}
		if l.CurrentSnapshot().Summary.Properties[keyPosition] != "" {
			t.Error("the test shows nothing: the snapshot has the position")
		}
		run(events[50:])
		requireRows(t, dir, events)
	})
	t.Run("orphans", func(t *testing.T) {
		needsDirectory(t)
		data := filepath.Join(dir, "kubebridge.db", "changes", "data")
		for name, age := range map[string]time.Duration{"new.parquet": time.Hour, "old.parquet": 100 * time.Hour} {
			path := filepath.Join(data, name)
			testkit.OK(t, os.WriteFile(path, nil, 0o600))
			testkit.OK(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
		}
		upkeep(t, dir, Upkeep{Only: []string{"orphans"}, DryRun: true})
		if _, err := os.Stat(filepath.Join(data, "old.parquet")); err != nil {
			t.Error("a dry run has removed it")
		}
		upkeep(t, dir, Upkeep{Only: []string{"orphans"}})
		if _, err := os.Stat(filepath.Join(data, "old.parquet")); err == nil {
			t.Error("it is still there")
		}
		if _, err := os.Stat(filepath.Join(data, "new.parquet")); err != nil {
			t.Error("it was removed, and may be of a commit that is still to be made")
		}
		requireRows(t, dir, events)
	})
}

// Spark's procedures rewrite and expire what a writer writes meanwhile. The writer resumes where it
// was, and no row is lost or comes twice.
func TestSpark(t *testing.T) {
	if os.Getenv("TABLE_SPARK") == "" {
		t.Skip("needs Spark 4: a Python with pyspark")
	}
	needsDirectory(t)
	events := testkit.Events(t, 7, 40, 10)
	url, dir := jetStream(t), tableDir(t)
	store := storer(t, url)
	store(t.Context(), events[:100], 0)
	run := append([]string{"run", "--from", url + "/K8S"}, placeArgs(dir)...)
	runProgram(t, append(run, "--once")...)
	writer := program(t, append(run, "--interval", "1ms")...)
	writer.Stderr = t.Output()
	testkit.OK(t, writer.Start())
	ctx, stop := context.WithCancel(t.Context())
	var storing sync.WaitGroup
	storing.Go(func() { store(ctx, events[100:], 200*time.Millisecond) })
	const procedure = "CALL kubebridge.system."
	askSpark(t, dir, []string{
		procedure + "rewrite_data_files(table => 'kubebridge.kubebridge.changes', options => map('rewrite-all', 'true'))",
		procedure + "expire_snapshots(table => 'kubebridge.kubebridge.changes', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
		procedure + "rewrite_data_files(table => 'kubebridge.kubebridge.changes', options => map('rewrite-all', 'true'))",
	}, map[string]string{"rows": "SELECT count(*) FROM kubebridge.kubebridge.changes"})
	l := openTest(t, dir)
	replaced := 0
	for _, s := range l.Metadata().Snapshots() {
		if s.Summary.Operation == lib.OpReplace {
			replaced++
		}
	}
	if replaced == 0 || len(l.Metadata().Snapshots()) > int(l.head())/2 {
		t.Errorf("the test shows nothing: %d rewrites, %d of %d snapshots", replaced, len(l.Metadata().Snapshots()), l.head())
	}
	_ = writer.Process.Kill()
	_ = writer.Wait() // it was killed
	storing.Wait()
	stop()
	t.Log(runProgram(t, append(run, "--once")...))
	requireRows(t, dir, events)
}

// Retention removes old days, and nothing that lives.
func TestRetention(t *testing.T) {
	events := timed(testkit.Events(t, 7, 20, 10), morning)
	url, dir := jetStream(t), tableDir(t)
	newStream(t, url, sinks.Binary)(events)
	midnight := events[len(events)-1].Time.UTC().Truncate(day).Add(day)
	now := func() time.Time { return midnight.Add(time.Hour) }
	o := options(t, url+"/K8S", dir)
	o.now = now
	u := Upkeep{Only: []string{"retain"}, Keep: time.Minute, now: now}
	openTest(t, dir)
	if out := upkeep(t, dir, u); !strings.Contains(out, "nothing") {
		t.Error(out)
	}
	_, err := Run(t.Context(), o)
	testkit.OK(t, err)
	upkeep(t, dir, u)
	if got, want := column(t, openTest(t, dir), aboutObjects, "id"), living(events); !slices.Equal(got, want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
}

// A compacted day has a file with nothing but its snapshot rows.
func TestCompactedFiles(t *testing.T) {
	dir := tableDir(t)
	random, f := rand.New(rand.NewPCG(1, 2)), newFeed(t, dir)
	for n := range 20 { // ten before midnight
		e := smallEvent(random, n, morning.Truncate(day).Add(time.Duration(n+14)*time.Hour))
		f.add(e)
		f.commit()
	}
	last := f.now
	upkeep(t, dir, Upkeep{Only: []string{"compact"}, now: func() time.Time { return last.Add(day) }})
	l := openTest(t, dir)
	for _, isSnapshot := range []bool{true, false} {
		files, err := l.files(t.Context(), iceberg.NewAnd(dayFilter(dayOf(last)), iceberg.EqualTo(iceberg.Reference(colSnapshot), isSnapshot)))
		testkit.OK(t, err)
		if rows, _ := total(files); rows != 10 || len(files) != 1 {
			t.Errorf("snapshot is %t: %d rows in %d files, want 10 in one", isSnapshot, rows, len(files))
		}
	}
}

// A filter by time reads no file whose rows are all of another time.
func TestPruning(t *testing.T) {
	url, dir := jetStream(t), tableDir(t)
	newStream(t, url, sinks.Binary)(timed(testkit.Events(t, 7, 20, 10), morning))
	_, err := Run(t.Context(), options(t, url+"/K8S", dir))
	testkit.OK(t, err)
	l := openTest(t, dir)
	for _, at := range []time.Time{morning, morning.Truncate(day)} {
		files, err := l.files(t.Context(), iceberg.LessThan(iceberg.Reference(colTime), iceberg.Timestamp(at.UnixMicro())))
		testkit.OK(t, err)
		if len(files) != 0 {
			t.Errorf("%d files from before %s: %v", len(files), at, files[0].LowerBoundValues())
		}
	}
	if files, err := l.files(t.Context(), aboutInformers); err != nil || len(files) != 1 {
		t.Errorf("%d files about informers: %v", len(files), err)
	}
	if files, err := l.files(t.Context(), iceberg.EqualTo(iceberg.Reference(colLate), true)); err != nil || len(files) != 0 {
		t.Errorf("%d files with late rows: %v", len(files), err)
	}
}

// The table coverage has what of each kind was read without a break, and the gap between.
func TestCoverage(t *testing.T) {
	parts := script(t)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	for _, part := range parts[:3] {
		store(part)
		_, err := Run(t.Context(), options(t, url+"/K8S", dir))
		testkit.OK(t, err)
	}
	l := openTable(t, dir, coverageSpec)
	kinds := map[string]int{}
	for _, name := range column(t, l, iceberg.EqualTo(iceberg.Reference("gap"), ""), "resource") {
		kinds[name]++
	}
	gaps := column(t, l, iceberg.NotEqualTo(iceberg.Reference("gap"), ""), "gap")
	if len(kinds) != len(testkit.EventTypes) || !slices.Contains(gaps, "forgotten") {
		t.Errorf("complete: %v, gaps: %q", kinds, gaps)
	}
}
