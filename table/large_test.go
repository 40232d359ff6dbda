package table

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	largeRows    = flag.Int("table.large", 0, "rows of TestLarge")
	daySnapshots = flag.Int("table.snapshots", 60, "how many snapshots the upkeep of TestMetadata keeps")
	largeDays    = flag.Int("table.days", 3, "days over which they are spread")
	dayCommits   = flag.Int("table.commits", 0, "commits of TestMetadata, in one day")
)

// feed writes events as a stream would have them, without a broker.
type feed struct {
	t      testing.TB
	writer *writer
	next   uint64
	now    time.Time
}

func newFeed(t testing.TB, dir string) *feed {
	t.Helper()
	f := &feed{t: t, next: 1}
	w, closeCatalog, err := open(t.Context(), Options{
		Place: placeOf(dir), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), now: func() time.Time { return f.now },
	})
	testkit.OK(t, err)
	t.Cleanup(closeCatalog)
	f.writer = w
	return f
}

// add writes an event that is stored when it happens.
func (f *feed) add(e *event.Event) {
	f.t.Helper()
	isNextDay := dayOf(f.now) != dayOf(e.Time)
	if f.now = e.Time; isNextDay {
		testkit.OK(f.t, f.writer.snapshotDue(f.t.Context()))
	}
	f.writer.add(&source.Message{Event: *e, Lane: "K8S", Offset: f.next, Stored: f.now})
	f.next++
	f.writer.read.Lanes = source.Position{"K8S": {Next: f.next}}
	testkit.OK(f.t, f.writer.spillFull(f.t.Context()))
}

func (f *feed) commit() {
	f.t.Helper()
	testkit.OK(f.t, f.writer.store(f.t.Context()))
}

// smallEvent is speedEvent with an object of 200 bytes.
func smallEvent(random *rand.Rand, n int, at time.Time) *event.Event {
	i, version := random.IntN(speedObjects), 1000+n
	namespace, name := fmt.Sprint("shop-", i/500), fmt.Sprint("web-", i)
	e := &event.Event{
		ID: fmt.Sprintf("%s/%d", name, version), Source: "/clusters/prod", Informer: "all",
		Type: "dev.kubebridge.resource.updated", Op: event.Updated, Time: at,
		Subject:      "api/v1/namespaces/" + namespace + "/pods/" + name,
		PartitionKey: "pods/" + namespace + "/" + name, Sequence: fmt.Sprintf("00000000.%020d", version),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: namespace, Name: name, UID: name,
			ResourceVersion: fmt.Sprint(version),
		},
		OriginAttributes: event.OriginAttributes{Manager: "kubelet", ManagerSubresource: "status"},
		Routing:          event.Routing{Version: "v1", Cluster: "prod"},
	}
	e.Data = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d",`+
		`"labels":{"app":%q}},"status":{"phase":"Running","restartCount":%d}}`, name, namespace, version, name, n)
	return e
}

// BenchmarkRow writes changes of objects of 5.9 KB. Its CPU is that of a row, without the broker.
func BenchmarkRow(b *testing.B) {
	random, f := rand.New(rand.NewPCG(1, 2)), newFeed(b, filepath.Join(b.TempDir(), "table"))
	var events []*event.Event
	used, n := time.Duration(0), 0
	for b.Loop() {
		if n%1000 == 0 {
			b.StopTimer()
			events = events[:0]
			for i := range 1000 {
				events = append(events, speedEvent(random, n+i, 200_000))
			}
			b.StartTimer()
		}
		before := processTime(b)
		f.add(events[n%1000])
		used += processTime(b) - before
		n++
	}
	before := processTime(b)
	f.commit()
	used += processTime(b) - before
	b.ReportMetric(float64(used.Nanoseconds())/1000/float64(n), "cpu-µs/row")
}

// processTime is the CPU time that this process has used.
func processTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	testkit.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestMetadata measures how large the metadata of a day is beside the data, where maintain expires
// snapshots each hour, and after the whole upkeep. With -table.commits 1440 there is a commit a
// minute, and -table.snapshots 60 is what --snapshots 1h leaves: make bench-table-large.
func TestMetadata(t *testing.T) {
	if *dayCommits == 0 {
		t.Skip("measures: make bench-table-large")
	}
	needsDirectory(t)
	dir, rows := tableDir(t), *dayCommits*139
	random, f := rand.New(rand.NewPCG(1, 2)), newFeed(t, dir)
	maintain := func(task string) {
		list := openTest(t, dir).Metadata().Snapshots()
		oldest := time.UnixMilli(list[max(0, len(list)-*daySnapshots)].TimestampMs)
		upkeep(t, dir, Upkeep{Only: []string{task}, Snapshots: time.Since(oldest)})
	}
	before, began := processTime(t), time.Now()
	for n := range rows {
		f.add(speedEvent(random, n, rows))
		if n%139 == 138 {
			f.commit()
		}
		if n%(139*60) == 139*60-1 {
			maintain("expire")
		}
	}
	t.Logf("%d commits of 139 rows: %.0f µs of CPU a row, %.0f s", f.writer.report.Commits,
		float64((processTime(t)-before).Microseconds())/float64(rows), time.Since(began).Seconds())
	sizes := func(when string) (data, metadata int64) {
		counts := map[string]int{}
		testkit.OK(t, filepath.WalkDir(filepath.Join(dir, "kubebridge.db"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			counts[filepath.Ext(path)]++
			if filepath.Ext(path) == ".parquet" {
				data += info.Size()
			} else {
				metadata += info.Size()
			}
			return nil
		}))
		t.Logf("%s: %d bytes of data, %d of metadata (%.1f %%); files %v", when, data, metadata, float64(metadata)/float64(data)*100, counts)
		return data, metadata
	}
	sizes("with an hourly expire")
	for _, task := range []string{"compact", "expire"} {
		maintain(task)
		sizes(task)
	}
}

// TestLarge measures the state at a time and a restart with many rows: make bench-table-large. All
// days but the last are compacted, as maintain does each day; the last one has the files of a
// commit each five minutes.
func TestLarge(t *testing.T) {
	if *largeRows == 0 {
		t.Skip("measures: make bench-table-large")
	}
	needsDirectory(t)
	dir := tableDir(t)
	if *speedDir != "" {
		dir = *speedDir
	}
	random, f, ids := rand.New(rand.NewPCG(1, 2)), newFeed(t, dir), map[string]string{}
	each, from, last := *largeRows / *largeDays, morning.Truncate(day), time.Time{}
	began := time.Now()
	for d := range *largeDays {
		for i := range each {
			last = from.Add(time.Duration(d)*day + time.Duration(i)*(day/time.Duration(each)))
			e := smallEvent(random, d*each+i, last)
			f.add(e)
			ids[e.Name] = e.ID
			if d == *largeDays-1 && (i+1)%max(200, each/288) == 0 {
				f.commit()
			}
		}
		f.commit()
	}
	report := f.writer.report
	t.Logf("%d rows and %d snapshot rows in %d commits: %.0f s", report.Rows, report.Snapshot, report.Commits, time.Since(began).Seconds())
	t.Run("a restart", func(t *testing.T) {
		url := jetStream(t)
		_, err := streamOf(t, url).CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "K8S", Subjects: []string{"k8s.>"}, FirstSeq: f.next, Storage: jetstream.MemoryStorage,
		})
		testkit.OK(t, err)
		e := smallEvent(random, *largeRows, last)
		newStream(t, url, sinks.Binary)([]event.Event{*e})
		ids[e.Name] = e.ID
		began := time.Now()
		out := runProgram(t, "run", "--once", "--from", url+"/K8S", "--to", dir)
		t.Logf("%.1f s until the row is in the table: %s", time.Since(began).Seconds(), out)
		if !strings.Contains(out, "1 messages, 1 rows, 0 repeats") {
			t.Error("it is not the only one")
		}
	})
	for _, when := range []string{"as written", "compacted"} {
		t.Run("the state at a time, "+when, func(t *testing.T) { measureState(t, dir, last) })
		upkeep(t, dir, Upkeep{Only: []string{"compact"}, Snapshots: day, now: func() time.Time { return last }})
	}
}

// measureState asks DuckDB through the views.
func measureState(t *testing.T, dir string, last time.Time) {
	t.Helper()
	python := os.Getenv("TABLE_PYTHON")
	if python == "" {
		t.Skip("needs DuckDB: make test-table")
	}
	var times []string
	for _, before := range []time.Duration{0, day / 2, 2 * day} {
		times = append(times, last.Add(-before).Format(time.DateTime))
	}
	in, err := json.Marshal(map[string]any{"views": runProgram(t, "sql", "--to", dir, "--engine", "duckdb"), "times": times})
	testkit.OK(t, err)
	cmd := exec.CommandContext(t.Context(), python, "testdata/large.py")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), t.Output()
	out, err := cmd.Output()
	testkit.OK(t, err)
	t.Logf("%s", out)
}
