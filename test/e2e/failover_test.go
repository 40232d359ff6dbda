package e2e_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/faults"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	failovers    = flag.Int("failover.count", 0, "how often the failover test takes the leader away; 0 is once in each way")
	failoverFile = flag.String("failover.report", "", "file to append the report of the failover test to")
)

// leaseDuration of the failover test's replicas.
const leaseDuration = 4 * time.Second

const failoverConfig = `
standby: {enabled: true, lease: {name: failover, namespace: "${NS}"}, leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 100ms}
informers:
  - name: app
    resources: [pods, deployments.apps, configmaps]
    namespaces: ["${NS}"]
sinks:
  - {name: js, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${JETSTREAM}"], stream: {storage: memory, duplicateWindow: 2m}}}
  - {name: kafka, retry: {initial: 100ms, max: 1s}, kafka: {brokers: ["${KAFKA}"], createTopics: {partitions: 4, replicationFactor: 1}}}
`

// replica is a bridge that stands by for another, with ways of its own to the API server and to the
// stream.
type replica struct {
	*harness.Bridge
	name      string
	apiServer *faults.Wire
	jetStream *faults.Wire
}

// way is how a leader is taken away.
type way string

const (
	killed     way = "killed"
	paused     way = "paused, and woken up behind its successor"
	fromAPI    way = "cut off from the API server"
	fromBroker way = "cut off from the stream, then killed"
	stopped    way = "stopped in order"
)

var ways = []way{killed, paused, fromAPI, fromBroker, stopped}

// failoverRun is one run of the failover test.
type failoverRun struct {
	*lab
	replicas  [2]*replica // the first is the leader
	jetStream *read.JetStream
	kafka     *read.Kafka
	ledger    *truth.Ledger
	churn     *crash.Churn
	took      map[way][]succession

	natsAddress, kafkaAddress string
}

// succession is how long it took until the first event of the successor, and how busy the machine
// was meanwhile.
type succession struct {
	took time.Duration
	busy float64 // how many times as long a short sleep took as it should have
}

// What a takeover may take. On a machine that has much else to do, which sleeps show by how late
// they end, single ones take longer: then the bound is on the median of several, and longer by as
// much as sleeps are. A bridge with the race detector is not held to it in single ones.
const (
	soon       = leaseDuration + 2*time.Second
	atLast     = leaseDuration + 20*time.Second
	enoughOnes = 5
	busyFrom   = 1.3
)

// TestFailover takes the leader away in every way while everything changes, then in two ways while
// nothing does. Nothing is lost,
// nothing is out of order, no event is in the stream twice, no list is asked for, and the successor
// publishes within about the lease's duration and two seconds.
func TestFailover(t *testing.T) {
	f := newFailover(t)
	f.begin()
	_, from, err := f.Requests(f.ctx, f.User, 0)
	must(t, err)
	count := cmp.Or(*failovers, len(ways))
	for i := range count {
		f.failOver(ways[i%len(ways)])
	}
	must(t, f.churn.Stop())
	f.quietFailOver(killed)
	f.quietFailOver(stopped)
	f.converge()
	byWatch, byPage := lists(f.requestsSince(from))
	f.judge(count, byWatch+byPage)
}

func newFailover(t *testing.T) *failoverRun {
	t.Helper()
	f := newReplicas(t)
	for i := range f.replicas {
		f.replicas[i] = f.newReplica(fmt.Sprint("replica-", i), failoverConfig, nil)
	}
	return f
}

// newReplicas prepares everything but the replicas.
func newReplicas(t *testing.T) *failoverRun {
	t.Helper()
	f := &failoverRun{lab: newLab(t, still(t)), took: map[way][]succession{}}
	f.allowLeases()
	_, _, server := gatedJetStream(t, filepath.Join(f.dir, "nats"))
	f.jetStream, f.natsAddress = &read.JetStream{URL: server.ClientURL(), Stream: "K8S"}, server.Addr().String()
	f.kafkaAddress, _ = startBroker(t, f.dir)
	f.kafka = kafkaReader(f.kafkaAddress)
	return f
}

// allowLeases gives the bridges the rights that standing by takes.
func (f *failoverRun) allowLeases() {
	f.t.Helper()
	rules := append(harness.ReadEverything(), rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
	})
	var err error
	f.Identity, err = f.NewIdentity(f.ctx, f.namespace, "standby", rules...)
	must(f.t, err)
}

func (f *failoverRun) newReplica(name, config string, variables map[string]string) *replica {
	f.t.Helper()
	r := &replica{name: name}
	var err error
	r.apiServer, err = faults.NewWire(strings.TrimPrefix(f.Admin().Host, "https://"))
	must(f.t, err)
	f.t.Cleanup(r.apiServer.Stop)
	r.jetStream, err = faults.NewWire(f.natsAddress)
	must(f.t, err)
	f.t.Cleanup(r.jetStream.Stop)
	kubeconfig := filepath.Join(f.dir, name+".kubeconfig")
	must(f.t, f.WriteKubeconfigThrough(kubeconfig, "https://"+r.apiServer.Address(), f.Admin().CAData, f.Token))
	r.Bridge = f.bridge(name, config, with(map[string]string{"JETSTREAM": r.jetStream.Address(), "KAFKA": f.kafkaAddress}), with(variables),
		func(c *harness.BridgeConfig) { c.Kubeconfig = kubeconfig })
	return r
}

// begin starts everything and waits until the standby could take over.
func (f *failoverRun) begin() {
	f.t.Helper()
	f.ledger = f.witness(f.collections()...)
	f.start(f.replicas[0].Bridge)
	f.churn = crash.StartChurn(f.ctx, f.client, f.namespace, rand.Uint64(), 1)
	f.t.Cleanup(func() { _ = f.churn.Stop() })
	f.start(f.replicas[1].Bridge)
	f.leads(f.replicas[0])
}

func (f *failoverRun) collections() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", f.namespace), truth.Named("deployments", "apps", "v1", f.namespace), truth.Core("configmaps", f.namespace),
	}
}

// leads waits until a replica leads.
func (f *failoverRun) leads(r *replica) {
	f.t.Helper()
	eventually(f.t, r.name+" leads", testPatience, func() []string {
		s, err := r.Status(f.ctx)
		if err != nil || s.Standby.Role != "leader" {
			return []string{fmt.Sprintf("%+v, %v", s.Standby, err)}
		}
		return nil
	})
}

// failOver takes the leader away, waits for the successor, and lets the one before come back.
func (f *failoverRun) failOver(by way) {
	f.t.Helper()
	leader, successor := f.replicas[0], f.replicas[1]
	f.ready(successor)
	time.Sleep(time.Duration(rand.Int64N(int64(time.Second)))) // at any moment
	busy := busyness(f.t)
	gone := f.takeAway(leader, by)
	f.leads(successor)
	f.took[by] = append(f.took[by], succession{f.untilFirstEvent(gone), busy()})
	f.bringBack(leader, by)
	f.replicas[0], f.replicas[1] = successor, leader
}

// quietFailOver takes the leader away some seconds after the last change. Its successor has nothing
// to send.
func (f *failoverRun) quietFailOver(by way) {
	f.t.Helper()
	leader, successor := f.replicas[0], f.replicas[1]
	f.ready(successor)
	f.converge()
	time.Sleep(5 * time.Second) // and no bookmark comes, which is what completes the last version
	before := f.stored()
	f.takeAway(leader, by)
	f.leads(successor)
	time.Sleep(2 * time.Second)
	if after := f.stored(); after != before {
		f.t.Errorf("%s while nothing changed: events in JetStream and Kafka %v before, %v after", by, before, after)
	}
	f.bringBack(leader, by)
	f.replicas[0], f.replicas[1] = successor, leader
}

// stored is how many events JetStream and Kafka have.
func (f *failoverRun) stored() (counts [2]int) {
	f.t.Helper()
	for i, r := range []reader{f.jetStream, f.kafka} {
		events, err := r.Refresh(f.ctx)
		must(f.t, err)
		counts[i] = len(events)
	}
	return counts
}

// busyness begins to measure how busy the machine is; what it gives ends that, and returns it.
func busyness(t *testing.T) (end func() float64) {
	const nap = 10 * time.Millisecond
	stop, busy := make(chan struct{}), make(chan float64, 1)
	go func() {
		naps, began := 0, time.Now()
		for {
			select {
			case <-stop:
				busy <- max(1, float64(time.Since(began))/float64(time.Duration(max(naps, 1))*nap))
				return
			case <-time.After(nap):
				naps++
			}
		}
	}()
	end = sync.OnceValue(func() float64 { close(stop); return <-busy })
	t.Cleanup(func() { end() })
	return end
}

func (f *failoverRun) ready(r *replica) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	must(f.t, r.WaitReady(ctx))
}

// takeAway gives the time at which the leader was gone.
func (f *failoverRun) takeAway(r *replica, by way) (at time.Time) {
	f.t.Helper()
	switch by {
	case killed:
		at = time.Now()
		r.Kill()
	case paused:
		at = time.Now()
		must(f.t, r.Signal(syscall.SIGSTOP))
	case fromAPI:
		at = time.Now()
		r.apiServer.Refuse()
	case fromBroker:
		r.jetStream.Refuse()
		time.Sleep(2 * time.Second) // what is sent meanwhile waits
		at = time.Now()
		r.Kill()
	case stopped:
		at = time.Now()
		f.stop(r.Bridge)
	}
	return at
}

// untilFirstEvent is how long after a time the first event of the successor was stored.
func (f *failoverRun) untilFirstEvent(gone time.Time) (took time.Duration) {
	f.t.Helper()
	eventually(f.t, "an event of the successor", testPatience, func() []string {
		events, err := f.jetStream.Refresh(f.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		fences := f.jetStream.Fences()
		i := slices.IndexFunc(fences, func(x read.Fence) bool { return x.At.After(gone) })
		if i < 0 {
			return []string{"it has not taken the stream's fence"}
		}
		for n := range events {
			if events[n].Place > fences[i].Place {
				took = events[n].At.Sub(gone)
				return nil
			}
		}
		return []string{"it has sent nothing"}
	})
	return took
}

// bringBack has the one that led before stand by.
func (f *failoverRun) bringBack(r *replica, by way) {
	f.t.Helper()
	switch by {
	case paused:
		must(f.t, r.Signal(syscall.SIGCONT))
		f.hasGivenUp(r)
	case fromAPI:
		f.hasGivenUp(r)
		must(f.t, r.apiServer.Accept())
	case fromBroker:
		must(f.t, r.jetStream.Accept())
	case killed, stopped:
	}
	must(f.t, r.Start())
}

// hasGivenUp waits until one that has lost the lease has ended.
func (f *failoverRun) hasGivenUp(r *replica) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, testPatience)
	defer cancel()
	code, err := r.Wait(ctx)
	must(f.t, err)
	if code != 1 || !strings.Contains(r.Log.Tail(5), "lease is lost") {
		f.t.Errorf("%s ended with exit code %d, want 1 and that it has lost the lease:\n%s", r.name, code, r.Log.Tail(5))
	}
}

// converge waits until the sinks hold the state of the cluster.
func (f *failoverRun) converge() {
	f.t.Helper()
	exist := f.exists(f.collections())
	for _, r := range []reader{f.jetStream, f.kafka} {
		eventually(f.t, "the state of the cluster", 2*testPatience, func() []string {
			events, err := r.Refresh(f.ctx)
			if err != nil {
				return []string{err.Error()}
			}
			return check.FinalState(exist, events, check.Options{})
		})
	}
}

// judge fails for whatever is wrong.
func (f *failoverRun) judge(count, lists int) {
	f.t.Helper()
	must(f.t, f.ledger.Err())
	var report strings.Builder
	fmt.Fprintf(&report, "%s: %d failovers, %d lists after both were in sync\n", f.t.Name(), count, lists)
	if lists > 0 {
		f.t.Errorf("%d lists were asked for", lists)
	}
	for name, r := range map[string]reader{"JetStream": f.jetStream, "Kafka": f.kafka} {
		events, err := r.Refresh(f.ctx)
		must(f.t, err)
		v, err := crash.Judge(f.ledger.Changes(), f.exists(f.collections()), events)
		must(f.t, err)
		fmt.Fprintf(&report, "%s: witnessed %d, %s\n", name, v.Witnessed, v)
		problems := append(v.Problems, v.Silent...)
		if v.Gaps > 0 {
			problems = append(problems, fmt.Sprintf("%d gaps were reported", v.Gaps))
		}
		if name == "JetStream" && v.Duplicates > 0 {
			problems = append(problems, fmt.Sprintf("%d events are there twice", v.Duplicates))
		}
		f.verified(f.replicas[0].Bridge, name, r)
		if len(problems) > 0 {
			f.t.Errorf("%s: %d problems, among them:\n%s", name, len(problems), strings.Join(problems[:min(len(problems), 20)], "\n"))
		}
	}
	f.judgeTimes(&report)
	f.t.Logf("\n%s", report.String())
	if *failoverFile != "" {
		must(f.t, appendTo(*failoverFile, report.String()+"\n"))
	}
}

func (f *failoverRun) judgeTimes(report *strings.Builder) {
	f.t.Helper()
	for _, by := range ways {
		list := slices.SortedFunc(slices.Values(f.took[by]), func(a, b succession) int { return cmp.Compare(a.took, b.took) })
		if len(list) == 0 {
			continue
		}
		busiest := 1.0
		for _, s := range list {
			busiest = max(busiest, s.busy)
		}
		median, longest := list[len(list)/2].took, list[len(list)-1].took
		if longest > atLast || !raceEnabled && busiest < busyFrom && longest > soon || len(list) >= enoughOnes && float64(median) > float64(soon)*busiest {
			f.t.Errorf("%s: the successor's first event came after %v, and at most %v; the lease lasts %v", by, median, longest, leaseDuration)
		}
		fmt.Fprintf(report, "%-45s %3d times, first event of the successor after: median %5.2f s, max %5.2f s (sleeps took up to %.1f times as long)\n",
			by, len(list), median.Seconds(), longest.Seconds(), busiest)
	}
}
