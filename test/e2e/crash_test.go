package e2e_test

import (
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	crashKills = flag.Int("crash.kills", 0, "how often each crash test kills the bridge; 0 is a short run, which has each kind of trouble once")
	crashSeed  = flag.Uint64("crash.seed", 0, "what the crash tests do, and when; 0 takes a new one each time")
	crashFile  = flag.String("crash.report", "", "file to append the reports of the crash tests to")
	// crashUnreported makes a failure of objects that are gone without a deleted, because all
	// reports of them lie in a gap.
	crashUnreported = flag.Bool("crash.unreported", true, "fail for objects that have no deleted, since all of their life lies in a gap that was reported")
)

// crashing is a control plane that nobody else uses: its API server is killed. It has no
// controllers, since the scheduler does not survive that each time.
var crashing = startOnce("crashing", noControllers, "--etcd-compaction-interval=0")

// Little memory, so that an outage of a broker goes to disk soon; the rest of what the bridge has
// to its defaults.
const (
	crashInformers = `
informers:
  - name: app
    resources: [pods, deployments.apps, configmaps]
    namespaces: ["${NS}"]
    queue: {memory: 256KiB, spool: 1GiB}
sinks:
`
	crashJetStream = `
  - {name: js, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${JETSTREAM}"], stream: {storage: memory, duplicateWindow: 2m}}}
  - {name: now, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${JETSTREAM}"], mode: kv, bucket: NOW, stream: {storage: memory}}}
`
	// The server allows no shorter window.
	crashForgetful = `
  - {name: js, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${JETSTREAM}"], stream: {storage: memory, duplicateWindow: 100ms}}}
  - {name: now, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${JETSTREAM}"], mode: kv, bucket: NOW, stream: {storage: memory, duplicateWindow: 100ms}}}
`
	crashCore = `
  - {name: core, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${NATS}"], mode: core}}
`
	crashKafka = `
  - {name: kafka, retry: {initial: 100ms, max: 1s}, kafka: {brokers: ["${KAFKA}"], createTopics: {partitions: 4, replicationFactor: 1}}}
`
)

// TestCrash kills the bridge at moments that nobody chooses, and at some that are chosen to hurt,
// while everything changes, its brokers come and go, and the API server forgets. Whatever happens:
// no change that a witness saw is lost, unless the bridge itself says so; each object's events are
// in order, and end in what the object has become. What comes again has its old id, and a reason.
// The bucket has in the end what exists, and nothing else.
func TestCrash(t *testing.T) {
	c := newCrash(t, crashing(t), 12)
	c.forgets = true
	c.addJetStream("JetStream, with a window of duplicates of 2 minutes", crashJetStream)
	c.addKafka("Kafka, which knows no ids")
	c.addCore("core NATS, which keeps nothing")
	c.run()
}

// TestCrashWithoutDedup is TestCrash with one sink only, which stores what comes again, and
// an API server that does not forget: so all that may come again is what was acknowledged and not
// committed, and nothing at all may be missing.
func TestCrashWithoutDedup(t *testing.T) {
	c := newCrash(t, crashing(t), 8)
	c.addJetStream("JetStream, without a window of duplicates (100 ms)", crashForgetful)
	c.run()
	if c.gaps() > 0 {
		t.Errorf("%d gaps were reported, though the API server has forgotten nothing", c.gaps())
	}
}

// crashRun is one run of a crash test.
type crashRun struct {
	*lab
	informers string            // of the configuration
	slower    float64           // how the changes come, as StartChurn has it
	env       map[string]string // of the bridge
	kills     int
	forgets   bool // the API server is killed, and forgets what was before
	seed      uint64
	random    *rand.Rand
	churn     *crash.Churn
	bridge    *harness.Bridge
	sinks     []*crashSink
	buckets   []string // where servers with a bucket are
	report    crash.Report

	lives     []crash.Life
	startup   time.Duration  // how long the last start took that was completed
	faults    sync.WaitGroup // faults that take longer than a kill
	apiServer chan struct{}  // holds one value while the API server is being restarted

	mu      sync.Mutex
	ledgers []*truth.Ledger // guarded by mu: one for each life of the API server
	err     error           // guarded by mu: of a restart of the API server
}

// run is the whole test.
func (c *crashRun) run() {
	began := time.Now()
	c.begin()
	next := c.plan(0)
	for i := range c.kills {
		p := next
		c.addFault(p)
		c.kill(c.live(p))
		if next = c.plan(i + 1); next.moment == crash.Listing {
			c.forget()
		}
		c.startBridge()
	}
	c.calm()
	c.converge()
	c.stop(c.bridge)
	c.endLife()
	c.report.Took = time.Since(began)
	c.judge()
	c.publishReport()
	const fewest = 15 // for each kill, on the slowest machine
	if seen := c.report.Sinks[0].Findings.Witnessed; seen < c.kills*fewest {
		c.t.Errorf("only %d changes: the test shows nothing", seen)
	}
}

// startBridge begins another life.
func (c *crashRun) startBridge() {
	c.t.Helper()
	c.lives = append(c.lives, crash.Life{Began: time.Now()})
	must(c.t, c.bridge.Start())
}

// kill kills the bridge, and waits until its brokers have taken what it had sent: it belongs to
// this life.
func (c *crashRun) kill(phase crash.Phase) {
	c.t.Helper()
	c.bridge.Kill()
	c.report.Kills[phase]++
	c.endLife()
}

// endLife notes the end of the bridge's life, however it came.
func (c *crashRun) endLife() {
	life := &c.lives[len(c.lives)-1]
	life.Ended, life.LastCommit = time.Now(), crash.LastWrite(c.bridge.StateDir)
	eventually(c.t, "the brokers have read to the end", testPatience, func() []string {
		for _, s := range c.sinks {
			if !s.gate.Empty() {
				return []string{s.name}
			}
		}
		return nil
	})
}

// calm ends the changes and the troubles.
func (c *crashRun) calm() {
	c.t.Helper()
	must(c.t, c.churn.Stop())
	c.faults.Wait()
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	must(c.t, err)
}
