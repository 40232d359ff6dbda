package kafkatest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	store "github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	keptsink "github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/nats/server"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A bridge keeps a history itself, and sends the same events to Apache Kafka and to JetStream.
// Archivers of both are killed again and again meanwhile, and the bridge misses versions. In the
// end both archives have what the bridge's own history has, and answer as it does.
func TestArchive(t *testing.T) {
	c := broker(t)
	program := buildProgram(t)
	server := startNATS(t)
	inProcess := t.TempDir()
	prefix := fmt.Sprintf("case%d.", destinations.Add(1))
	p := newPipeline(t, c, func(k *kafka.Options) {
		k.Cluster, k.Topic = "test", prefix+"{cluster}.{resource}"
	})
	p.beside = func() []bridge.SinkConfig {
		stream, err := nats.New(nats.Options{
			Config: testkit.WithDefaults(nats.Config{Servers: []settings.URL{settings.URL(server)}}),
			Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "test"},
		})
		must(t, err)
		kept, err := keptsink.New(keptsink.Options{Config: keptsink.Config{Dir: inProcess}})
		must(t, err)
		return []bridge.SinkConfig{{Name: "nats", Sink: stream}, {Name: "kept", Sink: kept}}
	}
	h := newHistory(p.server, 60, 300)
	p.start()
	p.settle(time.Minute)

	archives := map[string]string{
		"kafka://" + c.Addresses()[0] + "/" + prefix + "test.*": filepath.Join(t.TempDir(), "kafka"),
		server + "/K8S": filepath.Join(t.TempDir(), "nats"),
	}
	var killing errgroup.Group
	for from, dir := range archives {
		killing.Go(func() error { return killArchivers(t, program, from, dir) })
	}
	killed := make(chan error, 1)
	go func() { killed <- killing.Wait() }()
	for round := 1; len(killed) == 0; round++ {
		h.change()
		time.Sleep(2 * time.Millisecond)
		if round%1000 == 0 { // the bridge is down, and what happens then is forgotten
			p.stop()
			for range 100 {
				h.change()
			}
			p.server.Expire()
			p.start()
		}
	}
	must(t, <-killed)
	p.settle(time.Minute)
	p.stop()
	want := answers(t, inProcess)
	if n := len(want["gap"]); n == 0 {
		t.Error("there was no gap: the test shows less than it could")
	}
	t.Logf("%d changes: %d versions of objects, %d gaps", h.writes, len(want["versions"]), len(want["gap"]))
	for from, dir := range archives {
		out, err := exec.CommandContext(t.Context(), program, "archive", "--once", "--from", from, "--dir", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := answers(t, dir)
		for what, lines := range want {
			if !slices.Equal(got[what], lines) {
				t.Errorf("%s: %s: %s", from, what, firstDifference(got[what], lines))
			}
		}
	}
}

// killArchivers starts an archiver again and again, and kills it after a while. Where the machine
// is so slow that few of them have written anything by then, it kills more, each time later.
func killArchivers(t *testing.T, program, from, dir string) error {
	const kills, most, states = 20, 100, 5
	found := map[int]bool{}
	n := 0
	for ; n < kills || n < most && len(found) < states; n++ {
		cmd := exec.CommandContext(t.Context(), program, "archive", "--from", from, "--dir", dir)
		if err := cmd.Start(); err != nil {
			return err
		}
		longest := max(kills, n) * 50 // ms; the process has a time of its own
		time.Sleep(time.Duration(rand.IntN(longest)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // with the signal
		found[countVersions(dir)] = true
	}
	if len(found) < states {
		return fmt.Errorf("%s: %d archivers were killed, and the archive was in %d states: the test shows little",
			from, n, len(found))
	}
	t.Logf("%s: %d kills, after which the archive was in %d states", from, n, len(found))
	return nil
}

func countVersions(dir string) (n int) {
	db, err := store.Read(store.Options{Dir: dir})
	if err != nil {
		return 0 // it was not even made
	}
	defer db.Close()
	for range db.Questions.Timeline.Entries("test", "*", time.Time{}, time.Time{}, func(*record.Unit) bool { return true }) {
		n++
	}
	return n
}

// answers are what a history has, and what it answers.
func answers(t *testing.T, dir string) map[string][]string {
	t.Helper()
	db, err := store.Read(store.Options{Dir: dir})
	must(t, err)
	defer db.Close()
	all := map[string][]string{}
	add := func(what string, value any) {
		text, err := json.Marshal(value)
		must(t, err)
		all[what] = append(all[what], string(text))
	}
	var moments []query.Point
	for _, u := range db.Questions.Resources.Units() {
		for m, err := range db.Questions.Coverage.Notices(u, time.Time{}, time.Time{}) {
			must(t, err)
			add(string(m.Event.Op), json.RawMessage(event.AppendStructured(nil, &m.Event)))
		}
		for o, err := range db.Questions.Objects.All(u, "") {
			must(t, err)
			for v, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				must(t, err)
				add("versions", json.RawMessage(event.AppendStructured(nil, &v.Event)))
			}
		}
	}
	step := 0
	for e, err := range db.Questions.Timeline.Entries("test", "*", time.Time{}, time.Time{}, func(*record.Unit) bool { return true }) {
		must(t, err)
		add("timeline", e.Report())
		if step++; step%200 == 0 {
			moments = append(moments, query.Point{At: e.Time})
		}
	}
	for _, at := range moments {
		q := query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: "*", At: at}
		add("states", at.String())
		for v, err := range db.Questions.Objects.State(q) {
			must(t, err)
			add("states", v.Report(nil))
		}
		holes, unlisted, err := db.Questions.Coverage.UncertainState(q)
		must(t, err)
		for _, m := range holes {
			add("states", m.What())
		}
		add("states", len(unlisted))
	}
	return all
}

func firstDifference(got, want []string) string {
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			other := strings.Join(got[min(i, len(got)):min(i+1, len(got))], "")
			return fmt.Sprintf("%d, want %d; number %d is\n%s\nwant\n%s", len(got), len(want), i, other, want[i])
		}
	}
	return fmt.Sprintf("%d are too many, as %s", len(got)-len(want), got[len(want)])
}

func buildProgram(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("BRIDGE_BIN"); path != "" {
		return path
	}
	program := filepath.Join(t.TempDir(), "bridge")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/bridge")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// startNATS gives the URL of a server with JetStream.
func startNATS(t *testing.T) (url string) {
	t.Helper()
	s, err := server.New(server.Config{Port: -1, StoreDir: t.TempDir()})
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	must(t, s.WaitReady(t.Context()))
	return s.ClientURL()
}
