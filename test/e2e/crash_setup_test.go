package e2e_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

func newCrash(t *testing.T) *crashRun {
	t.Helper()
	c := &crashRun{lab: newLab(t, crashing(t)), seed: *crashSeed, apiServer: make(chan struct{}, 1)}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	t.Logf("seed: -crash.seed=%d", c.seed)
	c.random = rand.New(rand.NewPCG(c.seed, 0))
	jetStream, kafka := c.startJetStream(), c.startKafka()
	c.bridge = c.lab.bridge("bridge", crashConfig, with(map[string]string{"JETSTREAM": jetStream, "KAFKA": kafka}))
	c.churn = crash.StartChurn(c.ctx, c.client, c.namespace, c.seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the control plane's log:\n%s", c.ControlPlane.Log.Tail(15))
		}
		_ = c.churn.Stop() // calm has told of it
		c.inTrouble.Wait()
	})
	return c
}

// startJetStream runs a NATS server that outlives the bridge, and gives the address before its gate.
func (c *crashRun) startJetStream() string {
	c.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(c.dir, "nats"), NoSigs: true, NoLog: true})
	must(c.t, err)
	s.Start()
	c.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		c.t.Fatal("the NATS server does not start")
	}
	gate := &crash.Gate{}
	address, stop, err := gate.Proxy(s.Addr().String())
	must(c.t, err)
	c.t.Cleanup(stop)
	c.gates = append(c.gates, gate)
	c.stream = &read.JetStream{URL: s.ClientURL(), Stream: "K8S"}
	return address
}

// startKafka runs a broker behind a gate.
func (c *crashRun) startKafka() string {
	c.t.Helper()
	gate := &crash.Gate{}
	address := startKafka(c.t, kfake.ListenFn(gate.Listen)).ListenAddrs()[0]
	c.gates = append(c.gates, gate)
	c.records = kafkaReader(address)
	return address
}

// witnessAnew begins a new ledger and ends the one before: the history of an API server that was restarted begins anew.
func (c *crashRun) witnessAnew() {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	ledger, err := truth.Watch(ctx, c.Admin(), c.collections()...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
		return
	}
	if n := len(c.ledgers); n > 0 {
		c.ledgers[n-1].Stop()
	}
	c.ledgers = append(c.ledgers, ledger)
	c.t.Cleanup(ledger.Stop)
}

func (c *crashRun) collections() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", c.namespace), truth.Named("deployments", "apps", "v1", c.namespace), truth.Core("configmaps", c.namespace),
	}
}
