package e2e_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/read"
)

// newCrash prepares a run with so many kills, unless the command line says how many.
func newCrash(t *testing.T, cluster *cluster, kills int) *crashRun {
	t.Helper()
	c := &crashRun{
		lab: newLab(t, cluster), informers: crashInformers, slower: 1, kills: cmp.Or(*crashKills, kills), seed: cmp.Or(*crashSeed, rand.Uint64()),
		startup: time.Second, apiServer: make(chan struct{}, 1),
	}
	t.Logf("seed: -crash.seed=%d", c.seed)
	c.random = rand.New(rand.NewPCG(c.seed, 0))
	c.report = crash.Report{Name: t.Name(), Seed: c.seed, Kills: map[crash.Phase]int{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the control plane's log:\n%s", c.ControlPlane.Log.Tail(15))
		}
	})
	return c
}

// addJetStream runs a NATS server that outlives the bridge, behind a gate.
func (c *crashRun) addJetStream(name, yaml string) {
	c.t.Helper()
	address, gate, s := gatedJetStream(c.t, filepath.Join(c.dir, "nats"))
	c.buckets = append(c.buckets, s.ClientURL())
	c.sinks = append(c.sinks, &crashSink{
		name: name, key: strings.ReplaceAll(yaml, "${JETSTREAM}", address), gate: gate, keeps: yaml == crashForgetful,
		reader: &read.JetStream{URL: s.ClientURL(), Stream: "K8S"},
	})
}

// addCore runs a NATS server whose stream listens to what the bridge publishes without JetStream.
func (c *crashRun) addCore(name string) {
	c.t.Helper()
	address, gate, s := gatedJetStream(c.t, filepath.Join(c.dir, "core"))
	conn, err := nats.Connect(s.ClientURL())
	must(c.t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(c.t, err)
	_, err = js.CreateStream(c.ctx, jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.>"}, Storage: jetstream.MemoryStorage, Duplicates: 100 * time.Millisecond,
	})
	must(c.t, err)
	c.sinks = append(c.sinks, &crashSink{
		name: name, key: strings.ReplaceAll(crashCore, "${NATS}", address), gate: gate, keeps: true, forgets: true,
		reader: &read.JetStream{URL: s.ClientURL(), Stream: "K8S"},
	})
}

// gatedJetStream runs a NATS server, and gives the address before its gate.
func gatedJetStream(t *testing.T, dir string) (address string, gate *crash.Gate, s *server.Server) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(testPatience) {
		t.Fatal("the NATS server does not start")
	}
	gate = &crash.Gate{}
	address, stop, err := gate.Proxy(s.Addr().String())
	must(t, err)
	t.Cleanup(stop)
	return address, gate, s
}

// addKafka runs a broker behind a gate.
func (c *crashRun) addKafka(name string) {
	c.t.Helper()
	gate := &crash.Gate{}
	address := startKafka(c.t, kfake.ListenFn(gate.Listen)).ListenAddrs()[0]
	c.sinks = append(c.sinks, &crashSink{
		name: name, key: strings.ReplaceAll(crashKafka, "${KAFKA}", address), gate: gate, keeps: true, reader: kafkaReader(address),
	})
}

// begin starts everything. Some objects stay as they are, so that a list takes a moment.
func (c *crashRun) begin() {
	c.t.Helper()
	const idle = 500
	value := strings.Repeat("idle ", 200)
	c.each(idle, func(i int) { c.createConfigMap(fmt.Sprintf("idle-%d", i), value) })
	yaml := c.informers
	for _, s := range c.sinks {
		yaml += s.key
	}
	c.bridge = c.lab.bridge("bridge", yaml, with(c.env))
	must(c.t, c.newWitness())
	c.churn = crash.StartChurn(c.ctx, c.client, c.namespace, c.seed, c.slower)
	c.t.Cleanup(func() {
		_ = c.churn.Stop() // calm has reported its error
		c.faults.Wait()
	})
	c.startBridge()
	// Before the first position is saved, a restart is another first start, with another snapshot
	// and no gap to report.
	eventually(c.t, "the bridge has a position to resume from", testPatience, func() []string { return withoutPosition(c.ctx, c.bridge) })
}
