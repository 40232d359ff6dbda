package table

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/xxh3"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

// asProgram makes the test's own program bridge-table: that is the same code, and linked once.
const asProgram = "BRIDGE_TABLE_PROGRAM"

func TestMain(m *testing.M) {
	if address, dir, found := strings.Cut(os.Getenv(asBroker), " "); found {
		if err := serveBroker(address, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bridge-table:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// program is bridge-table with arguments.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	testkit.OK(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// runProgram runs it until it ends.
func runProgram(t *testing.T, args ...string) string {
	t.Helper()
	out, err := program(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func jetStream(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

// newStream makes the stream K8S, and returns what stores events in it.
func newStream(t *testing.T, url string, encoding string) (store func([]event.Event)) {
	t.Helper()
	return func(events []event.Event) {
		t.Helper()
		sink, err := nats.New(nats.Options{
			Config: testkit.WithDefaults(nats.Config{
				Servers: []settings.URL{settings.URL(url)},
				Stream: nats.Stream{
					Storage: "memory", Compression: "none", DuplicateWindow: 100 * time.Millisecond,
				},
			}),
			Common: sinks.Common{Name: "nats", Encoding: encoding}, Env: sinks.Env{Cluster: "prod"},
		})
		testkit.OK(t, err)
		testkit.OK(t, sink.Open(t.Context()))
		defer sink.Close()
		publishAll(t, sink, events)
	}
}

// runs sets each message apart, so that the server drops no repeat by itself.
var runs int

func publishAll(t *testing.T, sink sinks.Sink, events []event.Event) {
	t.Helper()
	batch, objects := []*sinks.Message{}, map[string]bool{}
	send := func() {
		sink.Publish(t.Context(), batch)
		for _, m := range batch {
			testkit.OK(t, m.Err)
		}
		batch = batch[:0]
		clear(objects)
	}
	for i := range events {
		e := &events[i]
		runs++
		e.Run = fmt.Sprintf("/%d", runs)
		_, err := sink.Lane(t.Context(), e)
		testkit.OK(t, err)
		if objects[e.PartitionKey] || len(batch) == 256 {
			send()
		}
		objects[e.PartitionKey] = true
		batch = append(batch, &sinks.Message{Event: e})
	}
	send()
}

func streamOf(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := natsgo.Connect(url)
	testkit.OK(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	testkit.OK(t, err)
	return js
}

// options of a Run into dir.
func options(t *testing.T, from, dir string) Options {
	t.Helper()
	return Options{
		Source: source.Config{From: from, Client: "test", Patience: 5 * time.Second},
		Place:  placeOf(dir), Once: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func openTest(t *testing.T, dir string) *lake {
	t.Helper()
	return openTable(t, dir, changes)
}

func openTable(t *testing.T, dir string, s spec) *lake {
	t.Helper()
	p := placeOf(dir)
	c, closeCatalog, err := p.open(t.Context())
	testkit.OK(t, err)
	t.Cleanup(closeCatalog)
	l, err := openLake(t.Context(), c, cmp.Or(p.Namespace, defaultNamespace), s)
	testkit.OK(t, err)
	return l
}

// With $TABLE_CATALOG, the address of a REST catalog, the tests use that, the warehouse
// $TABLE_WAREHOUSE and the properties $TABLE_PROPERTIES (a=b,c=d), and for each directory a
// namespace.
func placeOf(dir string) Place {
	p := Place{To: dir, Catalog: os.Getenv("TABLE_CATALOG")}
	if p.Catalog == "" {
		return p
	}
	p.To, p.Properties = os.Getenv("TABLE_WAREHOUSE"), map[string]string{}
	p.Namespace = fmt.Sprintf("t%x", xxh3.HashString(dir))
	for pair := range strings.SplitSeq(os.Getenv("TABLE_PROPERTIES"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		p.Properties[name] = value
	}
	return p
}

// placeArgs are the flags of a place.
func placeArgs(dir string) []string {
	p := placeOf(dir)
	args := []string{"--to", p.To}
	if p.Catalog == "" {
		return args
	}
	args = append(args, "--catalog", p.Catalog, "--namespace", p.Namespace)
	for name, value := range p.Properties {
		args = append(args, "--property", name+"="+value)
	}
	return args
}

// needsDirectory skips a test that looks into the files.
func needsDirectory(t *testing.T) {
	t.Helper()
	if placeOf("").Catalog != "" {
		t.Skip("looks into a directory")
	}
}

// column reads a column of texts of the rows that a filter matches.
func column(t *testing.T, l *lake, filter iceberg.BooleanExpression, name string) (values []string) {
	t.Helper()
	if l.CurrentSnapshot() == nil {
		return nil
	}
	for batch, err := range l.scan(t.Context(), filter, name) {
		testkit.OK(t, err)
		c := batch.Column(0).(*array.String)
		for i := range c.Len() {
			values = append(values, strings.Clone(c.Value(i)))
		}
		batch.Release()
	}
	slices.Sort(values)
	return values
}

// requireRows requires that the table has each event once.
func requireRows(t *testing.T, dir string, events []event.Event) {
	t.Helper()
	var want []string
	for i := range events {
		want = append(want, events[i].ID)
	}
	slices.Sort(want)
	got := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference(colSnapshot), false), "id")
	if slices.Equal(got, want) {
		return
	}
	counts := map[string]int{}
	for _, id := range want {
		counts[id]++
	}
	for _, id := range got {
		counts[id]--
	}
	missing, more := 0, 0
	for _, n := range counts {
		missing, more = missing+max(n, 0), more+max(-n, 0)
	}
	t.Fatalf("%d rows, want %d: %d are missing, %d too many", len(got), len(want), missing, more)
}

// tableDir is a directory for tables.
func tableDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "table")
}
