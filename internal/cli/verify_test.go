package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// verifyEvents is how many events are read; docs/verify.md has the figures for 1,000,000.
var verifyEvents = flag.Int("verify.events", 20_000, "events in the stream of the test of bridge verify")

// A stream with 100 faults, in JetStream and in a compressed file, read by the program: each fault
// is found and named, and nothing else is.
func TestVerifyPlantedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	const changes = 20
	events, planted := testkit.PlantFaults(t, testkit.Events(t, 9, max(*verifyEvents/changes, 300), changes), 9)
	program := buildBridge(t)
	t.Run("in JetStream", func(t *testing.T) {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
		testkit.OK(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server is not ready")
		}
		storeEvents(t, s.ClientURL(), events)
		requireFaults(t, runProgram(t, program, s.ClientURL()+"/K8S"), len(events), planted)
	})
	t.Run("in a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.json.gz")
		file, err := os.Create(path)
		testkit.OK(t, err)
		w := gzip.NewWriter(file)
		for i := range events {
			_, err := w.Write(append(event.AppendStructured(nil, &events[i]), '\n'))
			testkit.OK(t, err)
		}
		testkit.OK(t, errors.Join(w.Close(), file.Close()))
		requireFaults(t, runProgram(t, program, path), len(events), planted)
	})
}

// runProgram runs bridge verify, which must find something.
func runProgram(t *testing.T, program, from string) *verify.Report {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "verify", "--from", from, "-o", "json")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	began := time.Now()
	testkit.OK(t, cmd.Start())
	peak := watchPeak(cmd)
	_ = cmd.Wait() // with an exit code, which is looked at below
	took := time.Since(began)
	r := new(verify.Report)
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	t.Logf("%d events of %d objects in %v, %.1f s of CPU, at most %d MiB resident", r.Events, r.Objects, took.Round(time.Millisecond),
		(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), peak()>>20)
	if code := cmd.ProcessState.ExitCode(); code != ExitFailed {
		t.Errorf("exit code %d, want %d", code, ExitFailed)
	}
	return r
}

func requireFaults(t *testing.T, r *verify.Report, events int, planted map[string]testkit.Planted) {
	t.Helper()
	if r.Events != events || len(r.Found) != len(planted) {
		t.Errorf("%d faults in %d events, want %d in %d", len(r.Found), r.Events, len(planted), events)
	}
	for _, f := range r.Found {
		if planted[f.Object].Kind != string(f.Kind) {
			t.Errorf("%s in %s: %s; planted was %q", f.Kind, f.Object, f.What, planted[f.Object].What)
		}
	}
}

// watchPeak asks the system now and then for the most memory that a process has had, which is gone
// with the process. What it gives ends that, and is the last answer.
func watchPeak(cmd *exec.Cmd) (end func() int64) {
	stop, last := make(chan struct{}), make(chan int64)
	go func() {
		peak := int64(0)
		for {
			select {
			case <-stop:
				last <- peak
				return
			case <-time.After(10 * time.Millisecond):
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // none where there is no /proc
				if _, rest, found := bytes.Cut(status, []byte("VmHWM:")); found {
					kib, _ := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
					peak = kib << 10
				}
			}
		}
	}()
	return func() int64 { close(stop); return <-last }
}

// storeEvents publishes events in their order. Each message has an id of its own: the stream must
// not take a planted repeat for one.
func storeEvents(t *testing.T, url string, events []event.Event) {
	t.Helper()
	sink, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{
			Servers: []settings.URL{settings.URL(url)},
			Stream: nats.Stream{
				Storage: "memory", Compression: "none", DuplicateWindow: 100 * time.Millisecond,
			},
		}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
	})
	testkit.OK(t, err)
	testkit.OK(t, sink.Open(t.Context()))
	defer sink.Close()
	for i := range events {
		events[i].Run = "/" + time.Duration(i).String()
	}
	publishAll(t, sink, events)
}

// publishAll sends events, those of one object in order.
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
