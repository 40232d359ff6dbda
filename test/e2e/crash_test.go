package e2e_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	crashKills = flag.Int("crash.kills", 8, "how often TestCrash kills the bridge")
	crashSeed  = flag.Uint64("crash.seed", 0, "what TestCrash does, and when; 0 takes a new one each time")
)

// crashing is a control plane that nobody else uses: its API server is killed. It has no controllers, since the scheduler does not survive
// that each time.
var crashing = startOnce("crashing", noControllers, "--etcd-compaction-interval=0")

// Little memory, so that an outage of a broker goes to disk soon; the rest of what the bridge has to its defaults.
const crashConfig = `
informers:
  - name: app
    resources: [pods, deployments.apps, configmaps]
    namespaces: ["${NS}"]
    queue: {memory: 256KiB, spool: 1GiB}
sinks:
  - {name: js, retry: {initial: 100ms, max: 1s}, nats: {url: "nats://${JETSTREAM}", stream: {storage: memory, duplicates: 2m}}}
  - {name: kafka, retry: {initial: 100ms, max: 1s}, kafka: {brokers: ["${KAFKA}"], createTopics: {partitions: 4, replicationFactor: 1}}}
`

// TestCrash kills the bridge at moments that nobody chooses, while everything changes, its brokers come and go, and the API server forgets.
// Whatever happens: no change that a witness saw is lost, unless the bridge itself says so; each object's events are in order, and end
// in what the object has become.
func TestCrash(t *testing.T) {
	c := newCrash(t)
	began := time.Now()
	c.witnessAnew()
	c.start(c.bridge)
	// Before the first position is saved, a restart is another first start, with another snapshot and no gap to tell.
	eventually(t, "the bridge has a position to resume from", testPatience, func() []string { return withoutPosition(c.ctx, c.bridge) })
	for i := range *crashKills {
		c.trouble(i)
		c.kill()
	}
	c.calm()
	c.converge()
	c.stop(c.bridge)
	c.judge(time.Since(began))
}

// crashRun is one run of TestCrash.
type crashRun struct {
	*lab
	seed   uint64
	random *rand.Rand
	churn  *crash.Churn
	bridge *harness.Bridge

	stream    *read.JetStream
	records   *read.Kafka
	gates     []*crash.Gate  // of the brokers
	inTrouble sync.WaitGroup // what was begun by trouble and takes longer than a kill
	apiServer chan struct{}  // holds one value while the API server is being restarted
	restarts  int
	cuts      int
	exited    int // how often it had ended by itself

	mu      sync.Mutex
	ledgers []*truth.Ledger // guarded by mu: one for each life of the API server
	err     error           // guarded by mu: of a restart of the API server
}

// trouble begins something that goes on during the kills to come: in a short run each kind once, in a long one at random.
func (c *crashRun) trouble(kill int) {
	const every = 9
	kind := c.random.IntN(every)
	if kill < every {
		kind = kill - 1 // the first life of the bridge is undisturbed
	}
	length := time.Second + time.Duration(c.random.Int64N(int64(6*time.Second)))
	switch kind {
	case 0:
		c.restartAPIServer()
	case 2, 3:
		c.cut(c.gates[kind-2], length)
	}
}

// restartAPIServer has the API server forget what was before, and be killed. One at a time: while it is away, others only wait.
func (c *crashRun) restartAPIServer() {
	select {
	case c.apiServer <- struct{}{}:
	default:
		return
	}
	c.restarts++
	c.inTrouble.Go(func() {
		defer func() { <-c.apiServer }()
		ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
		defer cancel()
		_, err := c.Operate(ctx, "compact")
		if err == nil {
			_, err = c.Operate(ctx, "restart-apiserver?signal=KILL")
		}
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = err
			return
		}
		c.witnessAnew()
	})
}

// cut makes a broker unreachable for so long.
func (c *crashRun) cut(gate *crash.Gate, length time.Duration) {
	c.cuts++
	gate.Shut()
	c.inTrouble.Go(func() {
		time.Sleep(length)
		gate.Open()
	})
}

// kill lets the bridge live for a moment, kills it, and starts it again. Most lives are short; some are long enough that what an
// unreachable broker keeps waiting goes to disk for its age.
func (c *crashRun) kill() {
	c.t.Helper()
	life := time.Duration(c.random.Int64N(int64(1500 * time.Millisecond)))
	if c.random.IntN(12) == 0 {
		life = 5*time.Second + time.Duration(c.random.Int64N(int64(2*time.Second)))
	}
	for !c.lives(life) {
		c.exited++
		must(c.t, c.bridge.Start())
	}
	c.bridge.Kill()
	must(c.t, c.bridge.Start())
}

// lives waits for so long, and says whether the bridge has lived on: it ends by itself when it finds no API server at its start. What has
// started it then waits a little before it does so again.
func (c *crashRun) lives(length time.Duration) bool {
	select {
	case <-time.After(length):
		return true
	case <-c.bridge.Ended():
		c.t.Logf("the bridge ended by itself: %s", c.bridge.Log.Tail(1))
		if !c.ControlPlane.Running() {
			code, _ := c.ControlPlane.Wait(c.ctx)
			c.t.Fatalf("the control plane has ended with exit code %d", code)
		}
		time.Sleep(200 * time.Millisecond)
		return false
	}
}

// calm ends the changes and the troubles.
func (c *crashRun) calm() {
	c.t.Helper()
	must(c.t, c.churn.Stop())
	c.inTrouble.Wait()
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	must(c.t, err)
}
