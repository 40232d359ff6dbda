package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// end is where the requests of the lab's bridge end.
func (l *lab) end() int64 {
	l.t.Helper()
	_, end, err := l.Requests(l.ctx, l.User, 0)
	must(l.t, err)
	return end
}

// requestsSince are what the lab's bridge asked the API server since a place.
func (l *lab) requestsSince(place int64) []harness.Request {
	l.t.Helper()
	requests, _, err := l.Requests(l.ctx, l.User, place)
	must(l.t, err)
	return requests
}

// onlyProbes fails when a bridge listed anything: a restart may cost one probe, of one object, per
// resource, and one of the version clock, which compares it with that of another resource. Beside
// them the clock runs every ten seconds.
func (l *lab) onlyProbes(requests []harness.Request, resources int) {
	l.t.Helper()
	probes, watches := 0, 0
	for _, r := range requests {
		switch {
		case r.Verb == "list" && r.Query("limit") == "1":
			probes++
		case r.Verb == "list", r.Query("sendInitialEvents") != "":
			l.t.Errorf("the bridge listed: %s", r)
		case r.Verb == "watch":
			watches++
		}
	}
	if probes > 2*resources+2 {
		l.t.Errorf("%d probes of %d resources", probes, resources)
	}
	if watches < resources {
		l.t.Errorf("%d watches of %d resources were seen: the test shows nothing", watches, resources)
	}
}

// A clean restart lists nothing, and repeats nothing.
func TestCleanRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	l.createDeployment("web", 3)
	l.waitRolledOut("web")
	l.createConfigMap("idle", "never touched again")
	l.createConfigMap("dies", "while the bridge is down")
	ledger := l.witness(l.workloads()...)
	broker := startKafka(t).ListenAddrs()[0]
	b := l.bridge("bridge", workloads+jetStreamAndKafka, with(map[string]string{"KAFKA": broker}))
	l.start(b)
	l.scale("web", 5)
	l.waitRolledOut("web")

	l.stop(b)
	l.deleteConfigMap("dies")
	l.createConfigMap("dies", "and comes back")
	l.createConfigMap("new", "1")
	l.updateConfigMap("new", "2")
	l.scale("web", 2)
	l.roll("web", "app:2")
	l.waitRolledOut("web")
	place := l.end()
	l.start(b)
	l.onlyProbes(l.requestsSince(place), len(l.workloads()))

	l.scale("web", 4)
	l.waitRolledOut("web")
	o := check.Options{Informers: informerOf("app", l.workloads()...)}
	l.complete("JetStream", jetStream(b), ledger, o)
	l.complete("Kafka, which knows no ids", kafkaReader(broker), ledger, o)
	l.stop(b)

	place = l.end()
	l.start(b) // with nothing to report
	l.onlyProbes(l.requestsSince(place), len(l.workloads()))
	l.stop(b) // sends what it has, so that nothing can still come
	l.complete("Kafka", kafkaReader(broker), ledger, o)
}

// The short form of the crash suite: the bridge, its broker with it, is killed at moments that it
// does not choose.
func TestKillingTheBridge(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	const kills, workers = 5, 4
	broker := startKafka(t).ListenAddrs()[0]
	ledger := l.witness(l.workloads()...)
	b := l.bridge("bridge", workloads+jetStreamAndKafka, with(map[string]string{"KAFKA": broker}))

	work, stopWork := context.WithCancel(l.ctx)
	defer stopWork()
	var g errgroup.Group
	l.start(b)
	// Before the first position is saved, a restart is another first start, with another snapshot.
	eventually(t, "the bridge has a position to resume from", testPatience, func() []string { return withoutPosition(l.ctx, b) })
	l.createDeployment("web", 3)
	for i := range workers {
		g.Go(func() error { return churn(work, l.cluster, l.namespace, i) })
	}
	for i := range kills {
		// The first kill hits a bridge in full work, others one that has hardly started.
		delay := time.Duration(rand.IntN(1500)) * time.Millisecond
		time.Sleep(delay)
		b.Kill()
		t.Logf("kill %d after %v, %d changes so far", i+1, delay, len(ledger.Changes()))
		l.scale("web", 1+i)
		must(t, b.Start())
	}
	eventually(t, "there is enough work", testPatience, func() []string { return tooFew(ledger, "configmaps", 50, 500) })
	stopWork()
	must(t, g.Wait())
	l.deleteDeployment("web")
	l.waitNoPods()

	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	must(t, b.WaitReady(ctx))
	o := check.Options{Informers: informerOf("app", l.workloads()...)}
	// JetStream drops what comes a second time, by its id.
	events := l.complete("JetStream", jetStream(b), ledger, o)
	// Kafka does not know ids: a consumer drops repetitions by them, and is left with the right
	// order.
	o.Repeats = true
	records := l.complete("Kafka", kafkaReader(broker), ledger, o)
	l.stop(b)
	t.Logf("%d events in the stream, %d records in Kafka", len(events), len(records))
}

// The backlog of a sink survives every way in which a bridge can end: on disk, or because the
// position that a restart resumes from stays behind it.
func TestOutageAcrossRestarts(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	address, err := harness.FreeAddress()
	must(t, err)
	collection := truth.Core("configmaps", l.namespace)
	l.createConfigMap("changes", "0")
	l.createConfigMap("idle", "0")
	ledger := l.witness(collection)
	b := l.bridge("bridge", "shutdownTimeout: 1s\n"+configMaps+jetStreamAndKafka, with(map[string]string{"KAFKA": address}))
	must(t, b.Start())
	l.waitsOnlyFor(b, "kafka")
	eventually(t, "the snapshot is on disk", testPatience, func() []string { return unsettled(l.ctx, b) })

	for round, end := range []func(){
		func() { // when everything is on disk
			eventually(t, "the changes are on disk", testPatience, func() []string { return unsettled(l.ctx, b) })
			b.Kill()
		},
		func() { b.Kill() }, // before anything is
		func() { l.stop(b) },
	} {
		l.live(fmt.Sprint("up-", round))
		l.complete("JetStream, without Kafka", jetStream(b), ledger, check.Options{Informers: informerOf("app", collection)})
		end()
		l.live(fmt.Sprint("down-", round))
		must(t, b.Start())
		l.waitsOnlyFor(b, "kafka")
	}
	startKafka(t, kfakeAt(t, address))
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	must(t, b.WaitReady(ctx))
	l.complete("Kafka, when it is back", kafkaReader(address), ledger, check.Options{Informers: informerOf("app", collection)})
	l.complete("JetStream", jetStream(b), ledger, check.Options{Informers: informerOf("app", collection)})
	l.stop(b)
}

// live makes a change of each kind.
func (l *lab) live(name string) {
	l.t.Helper()
	l.createConfigMap(name, "1")
	l.updateConfigMap(name, "2")
	l.deleteConfigMap(name)
	l.createConfigMap(name, "3")
	l.updateConfigMap("changes", name)
}

// waitsOnlyFor waits until the bridge is ready, but for a sink.
func (l *lab) waitsOnlyFor(b *harness.Bridge, sink string) {
	l.t.Helper()
	eventually(l.t, "the bridge is ready but for sink "+sink, testPatience, func() []string {
		r, err := b.Readiness(l.ctx)
		if err != nil || len(r.Reasons) != 1 || r.Reasons[0].What != "sink "+sink {
			return []string{fmt.Sprint(r.Reasons, err)}
		}
		return nil
	})
}

// withoutPosition says which informers would list again after a restart.
func withoutPosition(ctx context.Context, b *harness.Bridge) (problems []string) {
	s, err := b.Status(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	if len(s.Informers) == 0 {
		return []string{"it waits for the API server"}
	}
	for _, i := range s.Informers {
		if i.Watermark == "" {
			problems = append(problems, "no position of "+i.Resource)
		}
	}
	return problems
}

// unsettled says what of the bridge's changes is neither acknowledged nor on disk.
func unsettled(ctx context.Context, b *harness.Bridge) (problems []string) {
	s, err := b.Status(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, i := range s.Informers {
		if i.Unsettled > 0 {
			problems = append(problems, fmt.Sprintf("%d changes of %s are unsettled", i.Unsettled, i.Resource))
		}
	}
	return problems
}

// An unavailable Kafka delays no other sink.
func TestUnavailableKafka(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	address, err := harness.FreeAddress()
	must(t, err)
	collection := truth.Core("configmaps", l.namespace)
	for i := range 20 {
		l.createConfigMap(fmt.Sprintf("before-%d", i), "exists")
	}
	ledger := l.witness(collection)
	b := l.bridge("bridge", `informers: [{name: app, resources: [configmaps], namespaces: ["${NS}"]}]`+jetStreamAndKafka,
		with(map[string]string{"KAFKA": address}))
	must(t, b.Start())

	l.saysNotReady(b, "sink kafka", address)
	l.waitsOnlyFor(b, "kafka")
	for i := range 50 {
		l.createConfigMap(fmt.Sprintf("map-%d", i), "1")
		l.updateConfigMap(fmt.Sprintf("map-%d", i), "2")
	}
	o := check.Options{Informers: informerOf("app", collection)}
	l.complete("JetStream, without Kafka", jetStream(b), ledger, o)
	l.waitsOnlyFor(b, "kafka")
	startKafka(t, kfakeAt(t, address))
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	must(t, b.WaitReady(ctx))
	l.complete("Kafka, when it is back", kafkaReader(address), ledger, o)
	l.complete("JetStream", jetStream(b), ledger, o)
	l.stop(b)
}
