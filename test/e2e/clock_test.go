package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/soak"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var clockJump = flag.Duration("clock.jump", 0, "by how much TestClockJumps moves the clock of a host; 0 skips it: it compiles the bridge and Kubernetes again, with another time.Now")

// TestClockJumps moves the wall clock of a host forth and back while the bridge runs, and kills the
// bridge at each time. Nothing is missing, nothing comes twice, no gap is reported, and the history
// forgets nothing before its time.
func TestClockJumps(t *testing.T) {
	if *clockJump == 0 {
		t.Skip("it takes long: -clock.jump=1h")
	}
	root, err := harness.Root()
	must(t, err)
	t.Run("of the bridge's host", func(t *testing.T) {
		w := newWallClock(t, *clockJump, 0, -*clockJump, 0)
		binary := filepath.Join(workDir, "jumping")
		must(t, harness.BuildJumping(t.Context(), filepath.Join(root, "cmd", "bridge"), binary))
		w.judge(t, live(t), func(c *harness.BridgeConfig) { c.Binary = binary })
	})
	t.Run("of the API server's host", func(t *testing.T) {
		// Its certificates are an hour old when it starts, so it starts behind.
		w := newWallClock(t, 0, *clockJump, 0, -*clockJump)
		w.retention = 4 * *clockJump // times are those of the API server
		w.set(t, -*clockJump)
		t.Setenv("WALL_JUMP", w.file)
		binary := filepath.Join(workDir, "jumping-controlplane")
		must(t, harness.BuildJumping(t.Context(), filepath.Join(root, "test", "kubernetes"), binary))
		c, err := startClusterOf(binary, "jumping", []string{noControllers})
		must(t, err)
		t.Cleanup(func() { stopCluster(c) })
		w.judge(t, c)
	})
}

// wallClock is what a wall clock differs by, in a file that a program of BuildJumping reads.
type wallClock struct {
	file  string
	jumps []time.Duration // of judge, one after the other
	// retention is that of judge's history.
	retention time.Duration
}

func newWallClock(t *testing.T, jumps ...time.Duration) *wallClock {
	w := &wallClock{filepath.Join(t.TempDir(), "jump"), jumps, 30 * time.Minute}
	w.set(t, 0)
	return w
}

func (w *wallClock) set(t *testing.T, by time.Duration) {
	must(t, os.WriteFile(w.file+".new", fmt.Append(nil, int64(by.Seconds())), 0o600))
	must(t, os.Rename(w.file+".new", w.file))
	time.Sleep(50 * time.Millisecond) // it is read every 20 ms
}

func (w *wallClock) judge(t *testing.T, c *cluster, options ...func(*harness.BridgeConfig)) {
	l := newLab(t, c)
	broker := &soakBroker{dir: filepath.Join(l.dir, "nats"), port: server.RANDOM_PORT}
	must(t, broker.start())
	t.Cleanup(broker.stop)
	kafka := startKafka(t).ListenAddrs()[0]
	options = append(options, with(map[string]string{"JETSTREAM": broker.url(), "KAFKA": kafka, "WALL_JUMP": w.file, "RETENTION": w.retention.String()}))
	b := l.bridge("bridge", `
informers:
  - {name: app, resources: [pods, deployments.apps, configmaps], namespaces: ["${NS}"]}
sinks:
  - {name: js, nats: {servers: ["${JETSTREAM}"]}}
  - {name: kafka, kafka: {brokers: ["${KAFKA}"], createTopics: {partitions: 4, replicationFactor: 1}}}
  - {name: history, history: {retention: "${RETENTION}"}}
`, options...)
	l.start(b)
	collections := []truth.Collection{
		truth.Core("pods", l.namespace), truth.Named("deployments", "apps", "v1", l.namespace), truth.Core("configmaps", l.namespace),
	}
	ledger := l.witness(collections...)
	tally, reader := soak.NewTally(), &read.JetStream{URL: broker.url(), Stream: "K8S"}
	const updates = 5
	l.createConfigMap("old", "0")
	for i := range updates {
		l.updateConfigMap("old", fmt.Sprint(i+1))
	}
	churn := crash.StartChurn(l.ctx, l.client, l.namespace, rand.Uint64(), 4)
	for _, by := range w.jumps {
		w.set(t, by)
		time.Sleep(12 * time.Second) // longer than a probe of the version clock, and a Lease
		b.Kill()
		l.start(b)
		broker.stop()
		time.Sleep(time.Second)
		must(t, broker.start())
		time.Sleep(2 * time.Second)
		must(t, addToTally(l.ctx, tally, ledger, reader))
		t.Logf("with the clock at %v: %s", by, tally)
	}
	must(t, churn.Stop())
	eventually(t, "everything is stored", testPatience, func() []string {
		must(t, addToTally(l.ctx, tally, ledger, reader))
		if tally.Missing() > 0 {
			return []string{tally.String()}
		}
		return nil
	})
	if tally.Foreign()+tally.Repeated+tally.Reordered+tally.Gaps > 0 {
		t.Errorf("%s\n%s", tally, strings.Join(tally.Problems, "\n"))
	}
	past := &soakClient{url: b.AdminURL(), namespace: l.namespace}
	exist := l.exists(collections)
	eventually(t, "the history", testPatience, func() []string { return past.lacks(l.ctx, exist) })
	versions, err := past.ask(l.ctx, "versions", url.Values{"object": {"cm/old"}})
	must(t, err)
	if n := strings.Count(versions, `"resourceVersion"`); n != 1+updates {
		t.Errorf("the history has %d versions, want %d: %s", n, 1+updates, versions)
	}
	events, err := kafkaReader(kafka).Refresh(l.ctx)
	must(t, err)
	stored := map[string]bool{}
	for i := range events {
		if events[i].AboutObject() {
			stored[events[i].ID()] = true
		}
	}
	if len(stored) != tally.Stored {
		t.Errorf("Kafka has %d changes, JetStream %d", len(stored), tally.Stored)
	}
	t.Logf("Kafka has %d events", len(events))
	l.stop(b)
	_, err = b.Output(l.ctx, "history", "check")
	must(t, err)
}
