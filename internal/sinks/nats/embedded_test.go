package nats_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// runEmbedded runs a server until the test ends, or until stop is called, which returns what Run returned.
func runEmbedded(t *testing.T, cfg nats.EmbeddedConfig) (e *nats.Embedded, stop func() error) {
	t.Helper()
	cfg.Log = testLog(t)
	e, err := nats.NewEmbedded(cfg)
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

func newSinkOver(t testing.TB, url string, change ...func(*nats.Config)) *nats.Sink {
	t.Helper()
	cfg := nats.Config{URL: url, Cluster: sinktest.Cluster}
	for _, c := range change {
		c(&cfg)
	}
	sink, err := nats.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func openOver(t testing.TB, url string, change ...func(*nats.Config)) *nats.Sink {
	t.Helper()
	sink := newSinkOver(t, url, change...)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	return sink
}

func storedCount(t testing.TB, url string) uint64 {
	t.Helper()
	nc, err := natsclient.Connect(url)
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

func TestAnEmbeddedServerStoresAcrossRunsAndStopsCleanly(t *testing.T) {
	cfg := nats.EmbeddedConfig{Port: -1, StoreDir: t.TempDir()}
	first, stop := runEmbedded(t, cfg)
	mustStore(t, openOver(t, first.ClientURL()), ev("a", 1), ev("b", 1))
	if err := stop(); err != nil {
		t.Fatalf("run: %v", err)
	}
	second, _ := runEmbedded(t, cfg)
	sink := openOver(t, second.ClientURL())
	mustStore(t, sink, ev("a", 1), ev("c", 1)) // the ids are remembered too
	if n := storedCount(t, second.ClientURL()); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
}

func TestAnEmbeddedServerTakesTheLargestObjects(t *testing.T) {
	e, _ := runEmbedded(t, nats.EmbeddedConfig{Port: -1, StoreDir: t.TempDir()})
	mustStore(t, openOver(t, e.ClientURL()), sinktest.NewEvent("a", 1, 5<<20))
}

func TestAPortInUseIsToldWithAWayOut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	e, err := nats.NewEmbedded(nats.EmbeddedConfig{Port: listener.Addr().(*net.TCPAddr).Port, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Run(t.Context())
	wantMentions(t, err, listener.Addr().String()+" is in use", "another port", "nats: {url: nats://"+listener.Addr().String()+"}")
	if waitErr := e.WaitReady(t.Context()); !errors.Is(waitErr, err) {
		t.Errorf("WaitReady: %v, want Run's error", waitErr)
	}
}

func TestAStoreDirectoryHasOneServer(t *testing.T) {
	dir := t.TempDir()
	runEmbedded(t, nats.EmbeddedConfig{Port: -1, StoreDir: dir})
	second, err := nats.NewEmbedded(nats.EmbeddedConfig{Port: -1, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	wantMentions(t, second.Run(t.Context()), dir, "in use")
}

func TestAStoreDirectoryThatCantBeUsedIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/jetstream", []byte("a file where a directory must be"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := nats.NewEmbedded(nats.EmbeddedConfig{Port: -1, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = e.Run(ctx)
	wantMentions(t, err, dir, "JetStream")
	if ctx.Err() != nil {
		t.Error("Run waited for its context instead of telling")
	}
}

func TestAnEmbeddedServerIsConfiguredSoundly(t *testing.T) {
	for _, cfg := range []nats.EmbeddedConfig{{}, {StoreDir: "x", Port: 70000}, {StoreDir: "x", MaxStore: -1}} {
		if _, err := nats.NewEmbedded(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	e, err := nats.NewEmbedded(nats.EmbeddedConfig{StoreDir: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if e.ClientURL() != "nats://127.0.0.1:4222" {
		t.Errorf("URL %s", e.ClientURL())
	}
}

const killedServer = "BRIDGE_TEST_EMBEDDED_STORE"

// What the embedded server acknowledged is there after kill -9: it dies with the bridge, whose checkpoint relies on it.
func TestWhatAnEmbeddedServerAcknowledgedSurvivesKill9(t *testing.T) {
	if dir := os.Getenv(killedServer); dir != "" {
		publishUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	for round := range 3 {
		acknowledged := killWhilePublishing(t, dir, round)
		e, stop := runEmbedded(t, nats.EmbeddedConfig{Port: -1, StoreDir: dir})
		if stored := storedCount(t, e.ClientURL()); stored < acknowledged {
			t.Fatalf("round %d: %d messages were acknowledged, %d are stored", round, acknowledged, stored)
		}
		nc, err := natsclient.Connect(e.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		js, _ := jetstream.New(nc)
		_ = js.DeleteStream(t.Context(), "K8S")
		nc.Close()
		_ = stop()
	}
}

// killWhilePublishing runs this test in a process of its own, kills it, and returns how many messages had been acknowledged.
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
		if _, err := fmt.Sscanf(lines.Text(), "acknowledged %d", &acknowledged); err == nil && acknowledged >= uint64(1000*(round+1)) {
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
	e, _ := runEmbedded(t, nats.EmbeddedConfig{Port: -1, StoreDir: dir})
	sink := openOver(t, e.ClientURL())
	for sent := 0; ; sent += 50 {
		batch := make([]string, 50)
		for i := range batch {
			batch[i] = strings.Repeat("n", i+1)
		}
		for _, m := range call(t, sink, eventsOf(batch, sent+1)...) {
			if m.Err != nil {
				t.Fatal(m.Err)
			}
		}
		fmt.Printf("acknowledged %d\n", sent+50)
	}
}
