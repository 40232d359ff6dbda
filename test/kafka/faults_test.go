package kafkatest_test

import (
	"context"
	"flag"
	"iter"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

var (
	faultTime = flag.Duration("faults.time", 30*time.Second, "how long brokers are killed and leaders are moved")
	faultRate = flag.Int("faults.rate", 500, "changes per second meanwhile")
)

// threeBrokers are brokers that a bridge sends to, each with a copy of everything. A bridge needs
// two of them. The methods may be called concurrently, those for one broker may not.
type threeBrokers interface {
	sink(n *network, log *slog.Logger) sinks.Sink
	kill(broker int)
	// start returns when the broker serves.
	start(broker int) error
	pause(broker int)
	resume(broker int)
	// areWhole reports whether every copy is there, and current.
	areWhole(ctx context.Context) bool
	// move has others lead, and returns how often it did.
	move(ctx context.Context) int
	stored() iter.Seq[stored]
	// reasons are what a person may read while two brokers are gone: one of them.
	reasons() []string
}

// TestBrokerFaults runs a bridge into three brokers while these are killed, paused and started
// again, others lead, and the bridge itself is killed again and again. While two brokers are gone
// the bridge says why nothing is stored. In the end the brokers hold every change of every object
// once, in its order.
func TestBrokerFaults(t *testing.T) {
	needJars(t)
	for name, start := range map[string]func(*testing.T) threeBrokers{"kafka": startThreeKafka, "nats": startThreeNATS} {
		t.Run(name, func(t *testing.T) {
			f := &faultRun{t: t, brokers: start(t)}
			f.bridge = newBridgeTest(t, f.brokers.sink)
			f.run()
		})
	}
}

// faultRun is one bridge with its brokers.
type faultRun struct {
	t       *testing.T
	brokers threeBrokers
	bridge  *bridgeTest

	kills, pauses, quorums, moves, crashes int
	slowest                                time.Duration // until the bridge said that two brokers are gone
}

// patience is how long something may take that takes seconds where nothing else runs.
const patience = 10 * time.Minute

func (f *faultRun) run() {
	t, p := f.t, f.bridge
	h := newHistory(p.server, 300, 200)
	p.start()
	p.settle(patience)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var faults sync.WaitGroup
	faults.Go(func() {
		defer cancel()
		f.disturb()
	})
	faults.Go(func() {
		for pause(ctx, time.Second) {
			limited, cancel := context.WithTimeout(ctx, 10*time.Second)
			f.moves += f.brokers.move(limited)
			cancel()
		}
	})
	faults.Go(func() { f.crashes = p.crashAgainAndAgain(ctx) })
	faults.Go(func() { p.forget(ctx) })
	began := time.Now()
	for first := h.writes; pause(ctx, 10*time.Millisecond); {
		for h.writes < first+int(time.Since(began).Seconds()*float64(*faultRate)) && ctx.Err() == nil { // a slow machine never catches up
			h.change()
		}
	}
	wrote := time.Since(began)
	faults.Wait()
	p.settle(patience)
	p.stop()

	v := h.judge(t, f.brokers.stored())
	t.Logf("%d changes in %v; brokers killed %d times, paused %d times, two gone %d times (said within %v), leaders moved %d times, the "+
		"bridge killed %d times: lost %d, reordered %d, duplicates %d", h.writes, wrote.Round(time.Second), f.kills, f.pauses, f.quorums,
		f.slowest.Round(100*time.Millisecond), f.moves, f.crashes, v.lost, v.reordered, v.duplicates)
	if v != (findings{}) {
		t.Errorf("%+v", v)
	}
	if f.kills == 0 || f.quorums == 0 || f.moves == 0 || f.crashes == 0 {
		t.Error("nothing was put to the test")
	}
}

// disturb kills or pauses brokers, and waits after each round until they have all their copies
// again. A slow machine takes two rounds however long that is.
func (f *faultRun) disturb() {
	ctx := f.t.Context()
	began := time.Now()
	for round := 0; round < 2 || time.Since(began) < *faultTime; round++ {
		pause(ctx, 2*time.Second)
		var err error
		switch broker := rand.IntN(3); {
		case round%5 == 0:
			err = f.loseTwo(broker)
		case round%5 == 3:
			f.pauses++
			f.brokers.pause(broker)
			pause(ctx, time.Duration(1000+rand.IntN(9000))*time.Millisecond)
			f.brokers.resume(broker)
		default:
			f.kills++
			f.brokers.kill(broker)
			pause(ctx, time.Duration(500+rand.IntN(3500))*time.Millisecond)
			err = f.brokers.start(broker)
		}
		if err != nil {
			f.t.Error(err)
			return
		}
		for began := time.Now(); !f.brokers.areWhole(ctx); time.Sleep(200 * time.Millisecond) {
			if time.Since(began) > patience {
				f.t.Errorf("round %d: the brokers do not get their copies again", round)
				return
			}
		}
	}
}

// loseTwo kills all brokers but one, until the bridge says so.
func (f *faultRun) loseTwo(left int) error {
	f.quorums++
	others := []int{(left + 1) % 3, (left + 2) % 3}
	f.bridge.stay.Lock()
	for _, broker := range others {
		f.brokers.kill(broker)
	}
	took := f.bridge.says(f.brokers.reasons())
	f.bridge.stay.Unlock()
	f.slowest = max(f.slowest, took)
	if took > 3*sinktest.Noticed { // TestEdges has the promise; here the machine may be busy
		f.t.Errorf("two brokers are gone: said after %v", took)
	}
	for _, broker := range others {
		if err := f.brokers.start(broker); err != nil {
			return err
		}
	}
	return nil
}

// says waits until the bridge is not ready for one of the reasons, in what /readyz, the status and
// the log say, and returns how long it took.
func (p *bridgeTest) says(reasons []string) time.Duration {
	has := func(text string) bool {
		return slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(text, reason) })
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var ready, status, log string
		for _, r := range p.life.bridge.Ready() {
			if r.Component == "sink broker" {
				ready = r.Message
			}
		}
		for _, s := range p.life.bridge.Status().Sinks {
			status = s.Blocked + s.LastError
		}
		log = p.life.log.String()
		if has(ready) && has(status) && has(log) {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			p.t.Errorf("the bridge does not say why nothing is stored: ready %q, status %q, log %t", ready, status, has(log))
			return time.Since(began)
		}
	}
}

// crashAgainAndAgain kills the bridge and starts it again with what it has left: about ten times,
// and every 15 seconds in a long form.
func (p *bridgeTest) crashAgainAndAgain(ctx context.Context) (crashes int) {
	mean := min(*faultTime/10, 15*time.Second)
	for pause(ctx, mean/2+rand.N(mean)) {
		p.stay.Lock()
		p.crash()
		crashes++
		p.start()
		p.stay.Unlock()
	}
	return crashes
}

// forget has the server forget what the bridge has committed for half a minute.
func (p *bridgeTest) forget(ctx context.Context) {
	for committed := resource.Version(""); pause(ctx, 30*time.Second); {
		p.server.Compact(committed)
		p.stay.Lock()
		committed = resource.Version(p.life.bridge.Status().Informers[0].Watermark)
		p.stay.Unlock()
	}
}

// pause waits, and reports whether ctx still continues.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// threeKafka is Apache Kafka.
type threeKafka struct {
	t     *testing.T
	c     *kafkatest.Cluster
	admin *kadm.Client
}

const faultTopic = "k8s.test.pods"

func startThreeKafka(t *testing.T) threeBrokers {
	c, err := kafkatest.Start(kafkatest.Options{Nodes: 3, Dir: filepath.Join(dir, "three"), Lib: lib, Properties: map[string]string{
		"min.insync.replicas": "2",
	}})
	must(t, err)
	t.Cleanup(c.Close)
	return &threeKafka{t, c, admin(t, c)}
}

func (k *threeKafka) sink(n *network, log *slog.Logger) sinks.Sink {
	return newSink(k.t, k.c, n.use, func(o *kafka.Options) {
		o.Log = log
		o.CreateTopics = &kafka.CreateTopics{Partitions: 6, ReplicationFactor: 3, Config: map[string]string{"min.insync.replicas": "2"}}
		o.Connection.Timeout = 5 * time.Second
	})
}

func (k *threeKafka) kill(broker int)   { k.c.Nodes[broker].Kill() }
func (k *threeKafka) pause(broker int)  { k.c.Nodes[broker].Pause() }
func (k *threeKafka) resume(broker int) { k.c.Nodes[broker].Resume() }

func (k *threeKafka) start(broker int) error {
	if err := k.c.Nodes[broker].Start(); err != nil {
		return err
	}
	return k.c.Nodes[broker].WaitServing(time.Now().Add(patience))
}

func (k *threeKafka) areWhole(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	topics, err := k.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return false
	}
	whole := true
	topics.EachPartition(func(p kadm.PartitionDetail) { whole = whole && len(p.ISR) == len(p.Replicas) && p.Leader >= 0 })
	return whole
}

func (k *threeKafka) move(ctx context.Context) int { return moveOne(ctx, k.admin, faultTopic) }

func (k *threeKafka) stored() iter.Seq[stored] {
	return func(yield func(stored) bool) {
		for r := range eachRecord(k.t, k.c, faultTopic) {
			if !yield(stored{header(r, "ce_type"), string(r.Key), header(r, "ce_resourceversion"), r.Partition}) {
				return
			}
		}
	}
}

func (k *threeKafka) reasons() []string {
	return []string{
		"connection refused", "Not Enough Replicas", "no broker answered", "start those that are gone",
		"start the brokers that have the other replicas",
	}
}

// moveOne makes the next replica of each partition the preferred one, and then the leader.
func moveOne(ctx context.Context, client *kadm.Client, topic string) (moved int) {
	topics, err := client.ListTopics(ctx, topic)
	if err != nil {
		return 0
	}
	var order kadm.AlterPartitionAssignmentsReq
	elect := kadm.TopicsSet{}
	for _, p := range topics[topic].Partitions {
		if len(p.ISR) == len(p.Replicas) {
			order.Assign(topic, p.Partition, slices.Concat(p.Replicas[1:], p.Replicas[:1]))
			elect.Add(topic, p.Partition)
		}
	}
	if _, err := client.AlterPartitionAssignments(ctx, order); err != nil {
		return 0
	}
	results, err := client.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect)
	if err != nil {
		return 0
	}
	for _, partitions := range results {
		for _, r := range partitions {
			if r.Err == nil {
				moved++
			}
		}
	}
	return moved
}
