package table

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/iceberg-go"
	icebergio "github.com/apache/iceberg-go/io"
	"github.com/nats-io/nats-server/v2/server"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

// runAt runs once at a time of the writer's clock.
func runAt(t *testing.T, url, dir string, now time.Time) *Report {
	t.Helper()
	o := options(t, url+"/K8S", dir)
	o.now = func() time.Time { return now }
	report, err := Run(t.Context(), o)
	testkit.OK(t, err)
	return report
}

// kafkaStore makes a broker, and a function that stores events in topics of one partition.
func kafkaStore(t *testing.T, config kafka.Config) (c *kfake.Cluster, store func(...event.Event)) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	testkit.OK(t, err)
	t.Cleanup(c.Close)
	config.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
	return c, func(events ...event.Event) {
		t.Helper()
		s, err := kafka.New(kafka.Options{
			Config: testkit.WithDefaults(config), Common: sinks.Common{Encoding: sinks.Binary},
			Connection: kafka.Connection{Brokers: c.ListenAddrs()},
		})
		testkit.OK(t, err)
		testkit.OK(t, s.Open(t.Context()))
		publishAll(t, s, events)
		testkit.OK(t, s.Close())
	}
}

// An object that changed just at midnight is in the state once: its row and its snapshot row have
// one time.
func TestMidnight(t *testing.T) {
	needsDirectory(t)
	midnight := morning.Truncate(day).Add(day)
	url, dir := jetStream(t), tableDir(t)
	newStream(t, url, sinks.Binary)([]event.Event{
		deployment(event.Added, "web", 1, 0, midnight.Add(-time.Hour)), deployment(event.Added, "cron", 2, 0, midnight),
	})
	runAt(t, url, dir, midnight.Add(time.Minute))
	question := map[string]map[string]string{"current": same("SELECT name FROM current")}
	for engine, got := range askEngines(t, dir, question) {
		if engine != "pyiceberg" {
			requireIDs(t, engine, got["current"], []string{"cron", "web"})
		}
	}
}

// What came behind the snapshot rows is in none of them, whatever time its record has: retention
// keeps it.
func TestRetentionLate(t *testing.T) {
	c, store := kafkaStore(t, kafka.Config{Timestamps: "event"})
	midnight, dir := morning.Truncate(day).Add(day), tableDir(t)
	run := func(now time.Time) {
		o := options(t, "kafka://"+c.ListenAddrs()[0]+"/k8s.prod.*", dir)
		o.now = func() time.Time { return now }
		_, err := Run(t.Context(), o)
		testkit.OK(t, err)
	}
	store(deployment(event.Added, "web", 1, 0, midnight.Add(-time.Hour)))
	run(midnight.Add(time.Minute))
	// Another bridge's first list: an object that changed two months ago.
	old := deployment(event.Added, "old", 2, 0, midnight.Add(-60*day))
	old.Initial = true
	store(old)
	run(midnight.Add(time.Hour))
	now := func() time.Time { return midnight.Add(2 * time.Hour) }
	upkeep(t, dir, Upkeep{Only: []string{"retain"}, Keep: 30 * day, now: now})
	if got := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference("name"), "old"), "name"); len(got) != 1 {
		t.Errorf("the last row of what lives: %q", got)
	}
}

// The same with JetStream: what was stored while a pass before midnight was read.
func TestRetentionPass(t *testing.T) {
	midnight, dir := morning.Truncate(day).Add(day), tableDir(t)
	f := newFeed(t, dir)
	before := deployment(event.Added, "web", 1, 0, midnight.Add(-time.Hour))
	f.add(&before)
	f.now = midnight.Add(time.Second) // a pass that began before midnight has ended
	testkit.OK(t, f.writer.snapshotDue(t.Context()))
	// The next pass: stored before midnight, behind the end that the pass before had.
	e := deployment(event.Added, "api", 2, 0, midnight.Add(-2*time.Second))
	f.writer.add(&source.Message{Event: e, Lane: "K8S", Offset: 2, Stored: midnight.Add(-time.Second)})
	f.writer.read.Lanes = source.Position{"K8S": {Next: 3}}
	f.commit()
	now := func() time.Time { return midnight.Add(2 * time.Hour) }
	upkeep(t, dir, Upkeep{Only: []string{"retain"}, Keep: time.Hour, now: now})
	if got := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference("name"), "api"), "name"); len(got) != 1 {
		t.Errorf("the last row of what lives: %q", got)
	}
}

// The state at a time that is kept is the same after retention, also where the writer did not run
// at the midnight before it.
func TestRetentionMidnight(t *testing.T) {
	needsDirectory(t)
	first := morning.Truncate(day).Add(day)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	store([]event.Event{deployment(event.Added, "web", 1, 0, first.Add(-time.Hour))})
	runAt(t, url, dir, first.Add(time.Minute))
	runAt(t, url, dir, first.Add(2*day+time.Minute)) // not at the midnight between
	at := first.Add(day + 12*time.Hour)
	question := map[string]map[string]string{"state": {
		"duckdb":     fmt.Sprintf("SELECT name FROM state_at('%s+00')", at.Format(time.DateTime)),
		"clickhouse": fmt.Sprintf("SELECT name FROM state_at(at = '%s')", at.Format(time.DateTime)),
	}}
	for _, when := range []string{"before", "after"} {
		for engine, got := range askEngines(t, dir, question) {
			if engine != "pyiceberg" {
				requireIDs(t, when+" retention, "+engine, got["state"], []string{"web"})
			}
		}
		now := func() time.Time { return first.Add(2*day + time.Hour) }
		upkeep(t, dir, Upkeep{Only: []string{"retain"}, Keep: day, now: now}) // keeps from first+1d+1h on
	}
}

// A table that was rolled back to before its snapshot rows gets them again.
func TestRollback(t *testing.T) {
	first := morning.Truncate(day).Add(day)
	url, dir := jetStream(t), tableDir(t)
	newStream(t, url, sinks.Binary)([]event.Event{deployment(event.Added, "web", 1, 0, first.Add(-time.Hour))})
	runAt(t, url, dir, first.Add(-time.Minute))
	l := openTest(t, dir)
	id := l.CurrentSnapshot().SnapshotID
	runAt(t, url, dir, first.Add(time.Minute))
	testkit.OK(t, l.reload(t.Context()))
	tx := l.NewTransaction()
	testkit.OK(t, tx.RollbackToSnapshot(id))
	testkit.OK(t, l.finish(t.Context(), tx))
	runAt(t, url, dir, first.Add(2*time.Minute))
	for n := range 2 {
		now := first.Add(time.Duration(n)*day + time.Hour)
		runAt(t, url, dir, now)
		upkeep(t, dir, Upkeep{Only: []string{"retain"}, Keep: time.Hour, now: func() time.Time { return now }})
		isWeb := iceberg.EqualTo(iceberg.Reference("name"), "web")
		if got := column(t, openTest(t, dir), isWeb, "name"); len(got) == 0 {
			t.Errorf("midnight %d: what lives has no row", n)
		}
	}
}

// A table that was rolled back, and written to by others then, has no position of what it has not.
func TestRollbackOthers(t *testing.T) {
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	events := timed(testkit.Events(t, 3, 4, 5), time.Now().UTC().Truncate(day).Add(time.Second))
	run := func(events []event.Event) error {
		store(events)
		o := options(t, url+"/K8S", dir)
		o.Interval = time.Nanosecond
		_, err := Run(t.Context(), o)
		return err
	}
	testkit.OK(t, run(events[:10]))
	compact := func() {
		l := openTest(t, dir)
		d := dayOf(time.Now())
		old, err := l.files(t.Context(), dayFilter(d))
		testkit.OK(t, err)
		_, err = l.compactDay(t.Context(), d, old)
		testkit.OK(t, err)
	}
	compact()
	upkeep(t, dir, Upkeep{Only: []string{"expire"}, Snapshots: 0})
	l := openTest(t, dir)
	id := l.CurrentSnapshot().SnapshotID
	testkit.OK(t, run(events[10:]))
	testkit.OK(t, l.reload(t.Context()))
	tx := l.NewTransaction()
	testkit.OK(t, tx.RollbackToSnapshot(id))
	testkit.OK(t, l.finish(t.Context(), tx))
	compact() // as Spark does
	if err := run(nil); err == nil || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("the writer resumes where the table is not: %v", err)
	}
}

// stoppingFS ends a context when the second file of rows is made.
type address = url.URL

type stoppingFS struct {
	syncedFS
	files *int
	stop  func()
}

func (s stoppingFS) Create(name string) (icebergio.FileWriter, error) {
	if strings.HasSuffix(name, ".parquet") {
		if *s.files++; *s.files == 2 {
			s.stop()
			return nil, context.Canceled
		}
	}
	return s.syncedFS.Create(name)
}

// A writer that is stopped while it writes files commits each row once.
func TestStopped(t *testing.T) {
	needsDirectory(t)
	url, dir := jetStream(t), tableDir(t)
	events := []event.Event{
		deployment(event.Added, "web", 1, 0, morning),
		about(event.Synced, 2, 0, morning, `{"version":"2","first":true}`),
	}
	newStream(t, url, sinks.Binary)(events)
	openTest(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	files := 0
	register := func(fs icebergio.IO) {
		open := func(context.Context, *address, map[string]string) (icebergio.IO, error) { return fs, nil }
		for _, scheme := range []string{"", "file"} {
			icebergio.Unregister(scheme)
			icebergio.Register(scheme, open)
		}
	}
	register(stoppingFS{syncedFS{}, &files, stop})
	t.Cleanup(func() { register(syncedFS{}) })
	_, _ = Run(ctx, options(t, url+"/K8S", dir))
	if files < 2 {
		t.Fatal("the test shows nothing")
	}
	requireRows(t, dir, events)
}

// Rows that were read are committed in time, also while the broker is unavailable.
func TestBrokerAway(t *testing.T) {
	dir := tableDir(t)
	f := newFeed(t, dir)
	e := deployment(event.Added, "web", 1, 0, morning)
	f.add(&e)
	f.now = morning.Add(80 * time.Hour)
	f.writer.report.Messages = 1 // the broker was there
	f.writer.Source = source.Config{From: "nats://127.0.0.1:1/K8S", Patience: time.Second}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.writer.run(ctx) })
	testkit.Eventually(t, "the row that has waited for 80 h, with an interval of a minute", func() bool {
		return len(column(t, openTest(t, dir), iceberg.AlwaysTrue{}, "id")) == 1
	})
	stop()
	wg.Wait()
}

// scriptedReader is a source that answers with what messages yields.
type scriptedReader struct {
	position source.Position
	removed  []source.Removal
	messages func(r *scriptedReader, yield func(*source.Message, error) bool)
}

func (r *scriptedReader) Messages(context.Context) iter.Seq2[*source.Message, error] {
	return func(yield func(*source.Message, error) bool) { r.messages(r, yield) }
}
func (r *scriptedReader) Position() source.Position            { return r.position }
func (r *scriptedReader) Progress() source.Progress            { return source.Progress{} }
func (r *scriptedReader) Removed() []source.Removal            { return r.removed }
func (r *scriptedReader) Whole() bool                          { return true }
func (r *scriptedReader) Sparse(context.Context) (bool, error) { return false, nil }
func (r *scriptedReader) Close()                               {}

// What the stream has removed is a gap, also where the connection is lost before the next message:
// the reader has noted it and moved its position then (jetstream.go: extents, then stream).
func TestRemovedThenLost(t *testing.T) {
	f := newFeed(t, tableDir(t))
	f.now = morning
	w := f.writer
	r := &scriptedReader{position: source.Position{"K8S": {Next: 51}}}
	r.messages = func(*scriptedReader, func(*source.Message, error) bool) {}
	testkit.OK(t, w.readToEnd(t.Context(), r)) // a pass without news
	r.messages = func(r *scriptedReader, yield func(*source.Message, error) bool) {
		r.removed = append(r.removed, source.Removal{Lane: "K8S", From: 51, To: 80})
		r.position["K8S"] = source.Lane{Next: 80}
		yield(nil, errors.New("connection lost"))
	}
	if err := w.readToEnd(t.Context(), r); err == nil {
		t.Fatal("no error")
	}
	if next := w.read.Lanes["K8S"].Next; next == 80 && len(w.rows) == 0 {
		t.Errorf("the writer resumes at %d and has no gap", next)
	}
}

// storeInto stores events in streams by resource.
func storeInto(t *testing.T, url string, events []event.Event) {
	t.Helper()
	sink, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{
			Servers: []settings.URL{settings.URL(url)},
			Subject: "k8s.{resource}.{cluster}.{group}.{version}.{namespace}.{name}.{op}",
			Stream: nats.Stream{
				Name: "K8S-{resource}", Storage: "memory", Compression: "none", DuplicateWindow: 100 * time.Millisecond,
			},
		}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
	})
	testkit.OK(t, err)
	testkit.OK(t, sink.Open(t.Context()))
	defer sink.Close()
	publishAll(t, sink, events)
}

// Of several streams one is recreated: the others' rows do not come twice.
func TestRecreatedOne(t *testing.T) {
	url, dir := jetStream(t), tableDir(t)
	web := deployment(event.Added, "web", 1, 0, morning)
	pod := deployment(event.Added, "pod", 2, 0, morning)
	pod.Resource, pod.PartitionKey = "pods", "pods/shop/pod"
	storeInto(t, url, []event.Event{web, pod})
	o := options(t, url+"/K8S-*", dir)
	_, err := Run(t.Context(), o)
	testkit.OK(t, err)
	requireRows(t, dir, []event.Event{web, pod})
	testkit.OK(t, streamOf(t, url).DeleteStream(t.Context(), "K8S-pods"))
	more := deployment(event.Updated, "pod", 3, 0, morning)
	more.Resource, more.PartitionKey = "pods", "pods/shop/pod"
	storeInto(t, url, []event.Event{more})
	o.Recreated = true
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	isChangeOfWeb := iceberg.NewAnd(iceberg.EqualTo(iceberg.Reference("name"), "web"),
		iceberg.EqualTo(iceberg.Reference(colSnapshot), false))
	if got := column(t, openTest(t, dir), isChangeOfWeb, "id"); len(got) != 1 {
		t.Errorf("rows of the stream that is as before: %q", got)
	}
}

// A stream that is made with its first event is read by a writer that runs.
func TestNewStream(t *testing.T) {
	url, dir := jetStream(t), tableDir(t)
	web := deployment(event.Added, "web", 1, 0, morning)
	pod := deployment(event.Added, "pod", 2, 0, morning)
	pod.Resource, pod.PartitionKey = "pods", "pods/shop/pod"
	storeInto(t, url, []event.Event{web})
	openTest(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	o := options(t, url+"/K8S-*", dir)
	o.Once, o.Interval = false, 10*time.Millisecond
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = Run(ctx, o) })
	rows := func() int {
		return len(column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference(colSnapshot), false), "id"))
	}
	testkit.Eventually(t, "the first row", func() bool { return rows() == 1 })
	storeInto(t, url, []event.Event{pod})
	testkit.Eventually(t, "the row of the new stream", func() bool { return rows() == 2 })
	stop()
	wg.Wait()
	requireRows(t, dir, []event.Event{web, pod})
}

// After a start the ids of the newest messages are the last that are forgotten.
func TestRemembered(t *testing.T) {
	events := testkit.Events(t, 3, 40, 10)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	const limit = 100
	for i := 0; i < 300; i += 50 {
		store(events[i : i+50])
		_, err := Run(t.Context(), options(t, url+"/K8S", dir))
		testkit.OK(t, err)
	}
	l := openTest(t, dir)
	text, _ := l.find(keyPosition)
	p, err := parsePosition(text)
	testkit.OK(t, err)
	seen := newRemembered(limit)
	testkit.OK(t, seen.load(t.Context(), l, p))
	for n := range 50 { // new messages
		seen.add(hashOf(0, "/clusters/prod", "workloads", fmt.Sprint("new/", n)))
	}
	lost := 0
	for i := 260; i < 300; i++ { // repeats of the newest 40 rows, at most 90 messages behind
		if seen.add(hashOf(0, events[i].Source, events[i].Informer, events[i].ID)) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of the newest 40 rows are not known: at most 90 messages lie between, and %d are remembered",
			lost, limit)
	}
}

// Names with a quote make no other SQL.
func TestQuote(t *testing.T) {
	needsDirectory(t)
	dir := tableDir(t) + "/o'brien"
	for _, of := range []string{"duckdb", "clickhouse"} {
		text, err := Views(t.Context(), Place{To: dir}, of, "", "")
		testkit.OK(t, err)
		if strings.Contains(strings.ReplaceAll(text, "o''brien", ""), "o'brien") {
			t.Errorf("%s: the path ends a text of SQL", of)
		}
	}
}

// An error of the start is returned.
func TestOpenFails(t *testing.T) {
	needsDirectory(t)
	url, dir := jetStream(t), tableDir(t)
	newStream(t, url, sinks.Binary)([]event.Event{deployment(event.Added, "web", 1, 0, morning)})
	runAt(t, url, dir, morning.Add(time.Hour))
	l := openTest(t, dir)
	tx := l.NewTransaction()
	testkit.OK(t, tx.SetProperties(map[string]string{keyPosition: "{"}))
	testkit.OK(t, l.finish(t.Context(), tx))
	upkeepRemovesSummary(t, l)
	if _, err := Run(t.Context(), options(t, url+"/K8S", dir)); err == nil {
		t.Error("no error")
	}
}

// upkeepRemovesSummary leaves a snapshot without a position.
func upkeepRemovesSummary(t *testing.T, l *lake) {
	t.Helper()
	testkit.OK(t, l.deleteRows(t.Context(), iceberg.AlwaysTrue{}, nil))
	testkit.OK(t, l.expire(t.Context(), 0))
}

// An open gap `lost` stays open behind retention: only a first list ends it.
func TestRetentionGap(t *testing.T) {
	first := morning.Truncate(day).Add(day)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	at := first.Add(-12 * time.Hour)
	store([]event.Event{
		deployment(event.Added, "web", 1, 0, at),
		about(event.Synced, 2, 0, at.Add(time.Second), `{"version":"2","first":true}`),
		about(event.Gap, 12, 0, at.Add(time.Minute), `{"reason":"lost","from":"","to":"12"}`),
	})
	runAt(t, url, dir, first.Add(time.Minute))
	store([]event.Event{about(event.Progress, 40, 0, first.Add(40*time.Hour), `{"version":"40"}`)})
	runAt(t, url, dir, first.Add(2*day+time.Minute))
	open := func() (n int) {
		for _, s := range stepsOf(t, dir) {
			if strings.HasSuffix(s, "to open lost") {
				n++
			}
		}
		return n
	}
	if open() != 1 {
		t.Fatalf("the test shows nothing: %q", stepsOf(t, dir))
	}
	now := func() time.Time { return first.Add(2*day + time.Hour) }
	upkeep(t, dir, Upkeep{Only: []string{"retain"}, Keep: time.Hour, now: now})
	store([]event.Event{
		about(event.Progress, 41, 0, first.Add(2*day+time.Hour), `{"version":"41"}`),
		about(event.Gap, 42, 0, first.Add(2*day+time.Hour), `{"reason":"expired","from":"41","to":"42"}`),
		about(event.Synced, 43, 0, first.Add(2*day+2*time.Hour), `{"version":"43"}`),
	})
	runAt(t, url, dir, first.Add(2*day+3*time.Hour))
	if open() != 1 {
		t.Errorf("no gap is open after retention: %q", stepsOf(t, dir))
	}
	for _, step := range stepsOf(t, dir) {
		var since int
		_, rest, _ := strings.Cut(step, " at ")
		_, err := fmt.Sscan(rest, &since)
		testkit.OK(t, err)
		if kept := first.Add(2 * day); morning.Add(time.Duration(since) * time.Second).Before(kept) {
			t.Errorf("%q claims a time from before %v, of which no row is left", step, kept)
		}
	}
}

// A stream that ends before the position is another one, as a partition of Kafka is.
func TestShorterStream(t *testing.T) {
	dir, storage := tableDir(t), t.TempDir()
	start := func() *server.Server {
		s, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: storage, NoSigs: true, NoLog: true,
		})
		testkit.OK(t, err)
		s.Start()
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server is not ready")
		}
		return s
	}
	events := testkit.Events(t, 3, 20, 10)
	s := start()
	stop := func() { s.Shutdown(); s.WaitForShutdown() }
	storer(t, s.ClientURL())(t.Context(), events[:50], 0)
	stop()
	before := t.TempDir()
	testkit.OK(t, os.CopyFS(before+"/copy", os.DirFS(storage)))
	s = start()
	storer(t, s.ClientURL())(t.Context(), events[50:80], 0)
	_, err := Run(t.Context(), options(t, s.ClientURL()+"/K8S", dir))
	testkit.OK(t, err)
	stop()
	storage = before + "/copy" // what had reached the disk, or a backup
	s = start()
	defer stop()
	storer(t, s.ClientURL())(t.Context(), events[80:100], 0)
	report, err := Run(t.Context(), options(t, s.ClientURL()+"/K8S", dir))
	if !errors.Is(err, source.ErrOther) {
		t.Errorf("20 messages are new, %d were read: %v", report.Messages, err)
	}
}

// On the first day of a table rows wait for the interval, as later.
func TestFirstDay(t *testing.T) {
	f := newFeed(t, tableDir(t))
	for n := range 3 {
		e := deployment(event.Added, "web", 1+n, 0, morning.Add(time.Duration(n)*time.Second))
		f.now = e.Time
		f.writer.add(&source.Message{Event: e, Lane: "K8S", Offset: uint64(n + 1), Stored: f.now})
		f.writer.read.Lanes = source.Position{"K8S": {Next: uint64(n + 2)}}
		testkit.OK(t, f.writer.snapshotDue(t.Context())) // as follow does behind each pass
		testkit.OK(t, f.writer.storeDue(t.Context()))
	}
	if f.writer.report.Commits > 0 {
		t.Errorf("%d commits in 3 seconds, with an interval of %s", f.writer.report.Commits, f.writer.Interval)
	}
}

// A topic that was made again is another one, also where it has more records than before.
func TestRecreatedTopic(t *testing.T) {
	c, store := kafkaStore(t, kafka.Config{})
	dir := tableDir(t)
	var events []event.Event
	for n := range 30 {
		events = append(events, deployment(event.Added, fmt.Sprint("web-", n), n+1, 0, morning))
	}
	o := options(t, "kafka://"+c.ListenAddrs()[0]+"/k8s.prod.*", dir)
	store(events[:10]...)
	_, err := Run(t.Context(), o)
	testkit.OK(t, err)
	client := &kafkago.Client{Addr: kafkago.TCP(c.ListenAddrs()[0])}
	_, err = client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{"k8s.prod.deployments"}})
	testkit.OK(t, err)
	store(events[10:]...)
	report, err := Run(t.Context(), o)
	if !errors.Is(err, source.ErrOther) {
		t.Errorf("20 records are in the topic, %d were read: %v", report.Messages, err)
	}
}

// No interval is so long that files are orphans before their commit.
func TestInterval(t *testing.T) {
	o := options(t, jetStream(t)+"/K8S", tableDir(t))
	o.Interval = MinOrphans + time.Hour
	if _, closeCatalog, err := open(t.Context(), o); err == nil {
		closeCatalog()
		t.Errorf("rows may wait for %s, and files of this age are removed", o.Interval)
	}
}

// A table with another name than changes, or a quoted one, has its coverage beside it.
func TestTableName(t *testing.T) {
	for name, want := range map[string]string{
		`lake.kubebridge."changes"`: `lake.kubebridge."coverage"`,
		"lake.kubebridge.`changes`": "lake.kubebridge.`coverage`",
	} {
		text, err := Views(t.Context(), Place{}, "trino", name, "")
		testkit.OK(t, err)
		if !strings.Contains(text, "SELECT * FROM "+want+";") {
			t.Errorf("%s: no %s", name, want)
		}
	}
}
