package e2e_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/soak"
)

var (
	soakTime = flag.Duration("soak.time", 0, "how long TestSoak runs; 0 skips it, 2m is enough to try it")
	soakPace = flag.Float64("soak.pace", 4, "the pauses between changes, as StartChurn has them: 1 is as fast as the crash tests, 4 asks for some 70 changes a second")
	soakDir  = flag.String("soak.report", "", "directory for soak.csv, soak.txt and heap profiles; the test's artifacts when it is not given")
)

// The bounds and intervals are those that a user has who says nothing.
const soakInformers = `
informers:
  - {name: app, resources: [pods, deployments.apps, configmaps], namespaces: ["${NS}"]}
sinks:
`

// TestSoak lets a bridge follow changes for long, without one of its brokers in the middle of it.
// What it needs in the end is what it needed before: memory, goroutines, files, and disk. And of
// course nothing is lost.
func TestSoak(t *testing.T) {
	if *soakTime == 0 || *soakKill > 0 {
		t.Skip("it takes long: -soak.time=30m, without -soak.kill")
	}
	s := newSoak(t)
	s.begin()
	s.sample()
	s.calm()
	s.converge()
	s.stop(s.bridge)
	s.endLife()
	s.judge()
	s.publishSoak()
}

// soakRun is a run of TestSoak: a crash test without a kill.
type soakRun struct {
	*crashRun
	out    string // directory for what is found
	series soak.Series
	// The first window is before the outage, the last long after it.
	first, outage, last soak.Window
}

// What the columns may grow by, from the window before the outage to the one at the end. Go returns
// memory late, and the database keeps some files of 16 MiB for reuse; a leak of 1 KB per change
// would be 100 MiB in half an hour.
var soakColumns = []soak.Column{
	{Name: "resident memory, MiB", Unit: mib, Ratio: 0.25, Slack: 16 * mib},
	{Name: "heap in use, MiB", Unit: mib, Ratio: 0.25, Slack: 8 * mib},
	{Name: "goroutines", Ratio: 0.1, Slack: 4},
	{Name: "open files", Ratio: 0.1, Slack: 4},
	{Name: "state directory, MiB", Unit: mib, Ratio: 0.5, Slack: 64 * mib},
	{Name: "change log in memory, KiB", Unit: 1 << 10, Slack: mib},
	{Name: "change log on disk, KiB", Unit: 1 << 10, Slack: mib},
	{Name: "changes that JetStream does not have", Slack: 500},
	{Name: "oldest event that waits for its sink, s", Slack: 2},
	{Name: "changes so far"},
}

const mib = 1 << 20

func newSoak(t *testing.T) *soakRun {
	t.Helper()
	// As in production, etcd is compacted every 5 minutes.
	c := ownCluster(t, "soaking", noControllers)
	s := &soakRun{crashRun: newCrash(t, c, 0), series: soak.Series{Columns: soakColumns}}
	s.kills, s.slower, s.informers = 0, *soakPace, soakInformers
	s.env = map[string]string{"BRIDGE_ADMIN_PPROF": "true"}
	if s.out = *soakDir; s.out == "" {
		s.out = t.ArtifactDir()
	}
	must(t, os.MkdirAll(s.out, 0o755))
	s.addJetStream("JetStream, with a window of duplicates of 2 minutes", crashJetStream)
	s.addKafka("Kafka, which knows no ids")
	part := func(from, to float64) soak.Window {
		return soak.Window{From: time.Duration(float64(*soakTime) * from), To: time.Duration(float64(*soakTime) * to)}
	}
	s.first, s.outage, s.last = part(0.15, 0.45), part(0.45, 0.55), part(0.75, 1)
	return s
}

// sample measures from the beginning to the end, and cuts a broker off for the outage.
func (s *soakRun) sample() {
	s.t.Helper()
	const most = 5 * time.Second
	began, kafka := time.Now(), s.sinks[len(s.sinks)-1]
	var open func()
	s.t.Cleanup(func() {
		if open != nil {
			open()
		}
	})
	tick := time.NewTicker(min(most, *soakTime/100))
	defer tick.Stop()
	for at := time.Duration(0); at < *soakTime; at = time.Since(began) {
		switch {
		case open == nil && at >= s.outage.From && at < s.outage.To:
			s.report.Cuts++
			s.profile("heap-first")
			open = kafka.cut()
		case open != nil && at >= s.outage.To:
			open()
			open = nil
		}
		if !s.bridge.Running() {
			s.t.Fatalf("the bridge has ended; it wrote:\n%s", s.bridge.Log.Tail(10))
		}
		s.series.Add(at, s.measure()...)
		<-tick.C
	}
	s.profile("heap-last")
}

// profile keeps what the bridge has on its heap, for whoever has to find what grew: go tool pprof
// -base heap-first heap-last.
func (s *soakRun) profile(name string) {
	s.t.Helper()
	data, err := s.bridge.Get(s.ctx, "/debug/pprof/heap?gc=1")
	must(s.t, err)
	must(s.t, os.WriteFile(filepath.Join(s.out, name+".pb.gz"), data, 0o644))
}

// measure gives a value for each of soakColumns.
func (s *soakRun) measure() []float64 {
	s.t.Helper()
	m, err := s.bridge.Metrics(s.ctx)
	must(s.t, err)
	state, err := sizeOf(s.bridge.StateDir)
	must(s.t, err)
	s.mu.Lock()
	ledger := s.ledgers[0]
	s.mu.Unlock()
	changes := ledger.Len()
	stored, err := s.sinks[0].reader.(*read.JetStream).Count(s.ctx)
	must(s.t, err)
	behind := max(0, changes+len(s.collections())-stored) // each collection has an event of its own, that it is in sync
	return []float64{
		m.Max("process_resident_memory_bytes"), m.Max("go_memstats_heap_inuse_bytes"), m.Max("go_goroutines"), m.Max("process_open_fds"), float64(state),
		m.Sum("bridge_informer_log_bytes"), m.Sum("bridge_informer_spool_bytes"), float64(behind), m.Max("bridge_publisher_oldest_seconds"), float64(changes),
	}
}

// sizeOf is what the files of a directory take. One that goes meanwhile takes nothing.
func sizeOf(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total, err
}

// publishSoak prints the table, leaves it and all samples as files, and fails for what is not flat.
func (s *soakRun) publishSoak() {
	s.t.Helper()
	text := s.soakReport()
	s.t.Logf("\n%s", text)
	must(s.t, os.WriteFile(filepath.Join(s.out, "soak.txt"), []byte(text), 0o644))
	file, err := os.Create(filepath.Join(s.out, "soak.csv"))
	must(s.t, err)
	must(s.t, s.series.WriteCSV(file))
	must(s.t, file.Close())
	for _, problem := range s.series.Problems(s.first, s.last) {
		s.t.Error(problem)
	}
	if wait := s.worst("change log on disk, KiB"); wait == 0 {
		s.t.Error("nothing went to disk during the outage: it shows nothing")
	}
}

// worst is the highest value of a column.
func (s *soakRun) worst(column string) float64 {
	for _, f := range s.series.Compare(s.first, s.last) {
		if f.Name == column {
			return f.Most
		}
	}
	s.t.Fatalf("there is no column %q", column)
	return 0
}

// soakReport is for somebody who has not seen the test.
func (s *soakRun) soakReport() string {
	text := "soak of " + soakTime.String() + ", Kafka cut off for " + (s.outage.To - s.outage.From).Round(time.Second).String() + " in the middle\n"
	text += s.series.Table(s.first, s.last)
	for _, sink := range s.report.Sinks {
		text += sink.String()
	}
	return text
}
