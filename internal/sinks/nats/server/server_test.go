package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/nats/server"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// run runs a server until the test ends, or until stop is called, which returns what Run returned.
func run(t *testing.T, cfg server.Config) (e *server.Server, stop func() error) {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	e, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	ready, cancelReady := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancelReady()
	if err := e.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	return e, stop
}

func openSink(t testing.TB, url string) *nats.Sink {
	t.Helper()
	sink, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{Servers: []settings.URL{settings.URL(url)}}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: sinktest.Cluster},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	return sink
}

// event is the first version of an object with a payload of this size.
func event(name string, size int) *sinks.Message {
	return &sinks.Message{Event: sinktest.NewEvent(name, 1, size)}
}

func store(t testing.TB, sink *nats.Sink, batch ...*sinks.Message) {
	t.Helper()
	sink.Publish(t.Context(), batch)
	for _, m := range batch {
		if m.Err != nil {
			t.Fatalf("publish %s: %v", m.Event.ID, m.Err)
		}
	}
}

func wantMentions(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not mention %q", err, word)
		}
	}
}

func storedCount(t testing.TB, url string) uint64 {
	t.Helper()
	nc, err := natsclient.Connect(url, patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "K8S")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

func TestRuns(t *testing.T) {
	cfg := server.Config{Port: -1, StoreDir: t.TempDir()}
	first, stop := run(t, cfg)
	store(t, openSink(t, first.ClientURL()), event("a", 300), event("b", 300))
	if err := stop(); err != nil {
		t.Fatalf("run: %v", err)
	}
	second, _ := run(t, cfg)
	// The ids of the first run are remembered too.
	store(t, openSink(t, second.ClientURL()), event("a", 300), event("c", 300))
	if n := storedCount(t, second.ClientURL()); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
}

func TestLargeObject(t *testing.T) {
	e, _ := run(t, server.Config{Port: -1, StoreDir: t.TempDir()})
	store(t, openSink(t, e.ClientURL()), event("a", 5<<20))
}

func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	e, err := server.New(server.Config{
		Port:     listener.Addr().(*net.TCPAddr).Port,
		StoreDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Run(t.Context())
	wantMentions(t, err, listener.Addr().String()+" is in use", "another port",
		"nats: {servers: [nats://"+listener.Addr().String()+"]}")
	if waitErr := e.WaitReady(t.Context()); !errors.Is(waitErr, err) {
		t.Errorf("WaitReady: %v, want Run's error", waitErr)
	}
}

func TestStoreDirInUse(t *testing.T) {
	dir := t.TempDir()
	run(t, server.Config{Port: -1, StoreDir: dir})
	second, err := server.New(server.Config{Port: -1, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	wantMentions(t, second.Run(t.Context()), dir, "in use")
}

func TestUnusableStoreDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/jetstream", []byte("a file where a directory must be"),
		0o600); err != nil {
		t.Fatal(err)
	}
	e, err := server.New(server.Config{Port: -1, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = e.Run(ctx)
	wantMentions(t, err, dir, "JetStream")
	if ctx.Err() != nil {
		t.Error("Run waited for its context and did not report the error")
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []server.Config{
		{},
		{StoreDir: "x", Port: 70000},
	} {
		if _, err := server.New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	e, err := server.New(server.Config{StoreDir: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if e.ClientURL() != "nats://127.0.0.1:4222" {
		t.Errorf("URL %s", e.ClientURL())
	}
}

// patient is for a busy machine.
var patient = natsclient.Timeout(time.Minute)

const killedServer = "BRIDGE_TEST_EMBEDDED_STORE"

// What the embedded server acknowledged is there after kill -9: it dies with the bridge, whose
// checkpoint relies on it.
func TestKill(t *testing.T) {
	if dir := os.Getenv(killedServer); dir != "" {
		publishUntilKilled(t, dir)
		return
	}
	for round := range 3 {
		dir := t.TempDir()
		acknowledged := killWhilePublishing(t, dir, round)
		e, stop := run(t, server.Config{Port: -1, StoreDir: dir})
		if stored := storedCount(t, e.ClientURL()); stored < acknowledged {
			t.Fatalf("round %d: %d messages were acknowledged, %d are stored", round, acknowledged,
				stored)
		}
		_ = stop()
	}
}

// killWhilePublishing runs this test in a process of its own, kills it, and returns how many
// messages had been acknowledged.
func killWhilePublishing(t *testing.T, dir string, round int) (acknowledged uint64) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), killedServer+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "acknowledged %d", &acknowledged); err == nil &&
			acknowledged >= uint64(1000*(round+1)) {
			_ = child.Process.Kill()
		}
	}
	_ = child.Wait()
	if acknowledged == 0 {
		t.Fatal("the other process published nothing")
	}
	return acknowledged
}

func publishUntilKilled(t *testing.T, dir string) {
	e, _ := run(t, server.Config{Port: -1, StoreDir: dir})
	sink := openSink(t, e.ClientURL())
	for sent := 0; ; sent += 50 {
		batch := make([]*sinks.Message, 50)
		for i := range batch {
			batch[i] = &sinks.Message{Event: sinktest.NewEvent(strings.Repeat("n", i+1), sent+1,
				300)}
		}
		store(t, sink, batch...)
		fmt.Printf("acknowledged %d\n", sent+50)
	}
}
