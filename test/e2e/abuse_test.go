package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	abuseTime  = flag.Duration("abuse.time", 15*time.Second, "how long TestAbuse has a hostile tenant; make test-abuse takes 10 minutes")
	abuseOnly  = flag.String("abuse.only", "", "a regular expression: only these kinds of abuse, to learn which one costs what")
	abuseJudge = flag.Bool("abuse.judge", false, "whether TestAbuse fails for the other tenant's latency, which needs a machine without other work")
)

// abuseConfig looks at all that the hostile tenant writes in every way that costs work: filters
// compare whole objects, patches are made of them, and labels name topics.
const abuseConfig = `
shutdownTimeout: 5s
informers:
  - name: app
    resources: [configmaps, secrets, namespaces, roles.rbac.authorization.k8s.io, "things.${GROUP}", "*.${EVIL}.example.com"]
    attributes: {team: metadata.labels.team}
    ignoreChanges: [metadata.annotations.seen]
    filter: op == "deleted" || object != old
    queue: {memory: 8MiB}
    sinks: [{name: js}, {name: teams, payload: change}]
sinks:
  - {name: js, maxInFlightBytes: 16MiB, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: teams, maxInFlightBytes: 16MiB, kafka: {brokers: ["${KAFKA}"], topic: "team.{attributes.team}"}}
`

// chosenConfig has only the namespaces of tenants. It is no part of abuseConfig: it reads all large
// objects again, which the plain program beside the bridge does not.
const chosenConfig = `
informers:
  - {name: chosen, resources: [configmaps], namespaceSelector: tenant}
sinks:
  - {name: chosen, kafka: {brokers: ["${KAFKA}"], topic: starts}}
`

// abuseStarts is how many bridges start while namespaces come and go, and abuseStay how long each
// follows them.
const (
	abuseStarts = 5
	abuseStay   = 2 * time.Second
)

// What the well-behaved tenant may notice: twice the latency of the quiet time, or of a plain
// program beside the bridge that publishes what it reads. Abuse makes the API server and the stream
// late, and takes what processors there are: at the 99th percentile a program that publishes only
// the small objects goes from 1 to 5 ms, and one that publishes all that it reads to 13 ms. So
// absolute times, or the bridge's quiet time alone, would judge the machine. The allowance is for
// what the plain program does not do: the bridge checks and decides each frame, makes patches, and
// feeds two sinks.
const (
	abuseFactor    = 2
	abuseAllowance = 5 * time.Millisecond
	abuseMemory    = 512 * mib // half of what the chart allows
)

// TestAbuse has a tenant write whatever the API server takes, beside a tenant whose events must
// stay complete, in order and as fast as before.
func TestAbuse(t *testing.T) {
	// What a hostile tenant leaves behind is no other test's.
	l := newLab(t, ownCluster(t, "abused"))
	good := l.definition()
	good.define("v1:stored")
	evil := newHostile(l, good.group)
	// The hostile tenant's topics are missing but for that of objects without a team.
	broker := startKafka(t, kfake.SeedTopics(1, "team.good", "team.-", "starts")).ListenAddrs()[0]
	label := []byte(`{"metadata":{"labels":{"tenant":"good"}}}`)
	_, err := l.client.CoreV1().Namespaces().Patch(l.ctx, l.namespace, types.MergePatchType, label, metav1.PatchOptions{})
	must(t, err)
	collections := []truth.Collection{
		truth.Core("configmaps", l.namespace),
		{Group: good.group, Version: "v1", Resource: "things", Namespaced: true, Namespace: l.namespace},
	}
	ledger := l.witness(collections...)
	b := l.bridge("bridge", abuseConfig, with(map[string]string{
		"KAFKA": broker, "GROUP": good.group, "EVIL": evil.namespace, "BRIDGE_KUBERNETES_DISCOVERY_INTERVAL": "2s",
	}))
	l.start(b)
	born := metric(t, l, b, "process_start_time_seconds")

	beside := l.startPlain()

	work, stop := context.WithCancel(l.ctx)
	defer stop()
	var g errgroup.Group
	p := &pulses{sent: map[int64]time.Time{}}
	g.Go(func() error { return p.run(work, l) })
	g.Go(func() error { return watchPulses(work, l.client, p.note) })
	g.Go(func() error { return good.churn(work) })
	quiet := time.Now()
	time.Sleep(max(10*time.Second, *abuseTime/10))
	busy := time.Now()

	hostile, peace := context.WithCancel(work)
	defer peace()
	cpu := -metric(t, l, b, "process_cpu_seconds_total")
	wait := evil.abuse(hostile)
	memory := watchMemory(t, l, b, *abuseTime)
	cpu += metric(t, l, b, "process_cpu_seconds_total")
	calm := time.Now()
	for i := range abuseStarts { // after what is timed
		late := l.bridge(fmt.Sprint("late-", i), chosenConfig, with(map[string]string{"KAFKA": broker}))
		l.start(late)
		time.Sleep(abuseStay)
		l.stop(late)
	}
	peace()
	wait()
	stop()
	must(t, g.Wait())
	plainly := beside.stop(l)

	reader := &read.JetStream{URL: b.NATS, Stream: "K8S", Filter: "k8s.*.*.*.*." + l.namespace + ".>"}
	only := func(_, namespace, _ string) bool { return namespace == l.namespace }
	options := check.Options{Informers: informerOf("app", collections...), Only: only}
	events := l.completeWithin(2*time.Minute, "the other tenant's events", reader, ledger, options)
	teams := &teamTopics{read.Kafka{Brokers: []string{broker}, Prefix: "team."}, l.namespace}
	l.completeWithin(2*time.Minute, "the other tenant's events in Kafka", teams, ledger, options)
	started, err := (&read.Kafka{Brokers: []string{broker}, Prefix: "starts"}).Refresh(l.ctx)
	must(t, err)
	requireSelected(t, started, l.namespace, evil.namespace)
	t.Logf("%d changes of the other tenant; memory at most %d MiB", ledger.Len(), memory/mib)
	before, during := p.latencies(stored(events), quiet, busy), p.latencies(stored(events), busy, calm)
	t.Logf("from a plain watch to the stream: %s in quiet, %s under abuse", before, during)
	plainBefore, plainDuring := p.latencies(plainly, quiet, busy), p.latencies(plainly, busy, calm)
	t.Logf("by the plain program: %s in quiet, %s under abuse", plainBefore, plainDuring)
	t.Logf("the bridge took %.1f s of processor time for %v of abuse", cpu, *abuseTime)
	t.Logf("what the API server took of the hostile tenant: %s", evil)
	for _, what := range evil.missing() {
		t.Errorf("nothing of the hostile tenant's %s came through: it shows nothing", what)
	}
	if base := max(before.at(99), plainDuring.at(99)); *abuseJudge && during.at(99) > abuseFactor*base+abuseAllowance {
		t.Errorf("the other tenant's p99 is %v under abuse, where %v is due to others", during.at(99), base)
	}
	if min(len(before), len(during), len(plainDuring)) < 20 {
		t.Errorf("only %d and %d changes were timed, by the plain program %d", len(before), len(during), len(plainDuring))
	}
	if limit := abuseMemory * raceFactor(); memory > limit {
		t.Errorf("the bridge has %d MiB, the bound is %d", memory/mib, limit/mib)
	}
	if now := metric(t, l, b, "process_start_time_seconds"); now != born || !b.Running() {
		t.Error("the bridge was restarted")
	}
	l.stop(b)
}

// requireSelected fails unless the bridges that started late have events of the good namespace, and
// of the labelled ones of the hostile tenant, as they came and went. Its own one has no label.
func requireSelected(t *testing.T, events []read.Event, good, evil string) {
	t.Helper()
	ofGood, came, went := 0, 0, 0
	for i := range events {
		switch namespace := events[i].Attribute("namespace"); {
		case namespace == evil:
			t.Fatalf("%s is of a namespace that is not selected", events[i].ID())
		case namespace == good:
			ofGood++
		case !strings.HasPrefix(namespace, evil+"-"):
		case events[i].Op() == "deleted":
			went++
		default:
			came++
		}
	}
	if ofGood == 0 || *abuseOnly == "" && (came == 0 || went == 0) {
		t.Errorf("%d events of the good namespace; of those that come and go %d, and %d of deleted objects",
			ofGood, came, went)
	}
	t.Logf("of namespaces that came and went: %d events, and %d of deleted objects", came, went)
}

func raceFactor() int {
	if raceEnabled {
		return 4
	}
	return 1
}

func metric(t *testing.T, l *lab, b *harness.Bridge, name string) float64 {
	t.Helper()
	m, err := b.Metrics(l.ctx)
	must(t, err)
	return m.Max(name)
}

// watchMemory returns the most memory that the bridge has had in a time.
func watchMemory(t *testing.T, l *lab, b *harness.Bridge, d time.Duration) (most int) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		if !b.Running() {
			t.Fatalf("the bridge has ended; it wrote:\n%s", b.Log.Tail(20))
		}
		most = max(most, int(metric(t, l, b, "process_resident_memory_bytes")))
	}
	return most
}

// pulses are updates of one ConfigMap. Each has a number, and a time: the later one of when the API
// server had answered, and when a plain watch of all namespaces, as the bridge has one, had it.
type pulses struct {
	mu   sync.Mutex
	sent map[int64]time.Time // by number; guarded by mu
}

func (p *pulses) note(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[n] = time.Now()
}

func (p *pulses) run(ctx context.Context, l *lab) error {
	maps := l.client.CoreV1().ConfigMaps(l.namespace)
	pulse := configMap("pulse", nil)
	pulse.Labels = map[string]string{"team": "good"}
	if _, err := maps.Create(ctx, pulse, metav1.CreateOptions{}); err != nil {
		return ignoreEnd(ctx, err)
	}
	for n := int64(1); ctx.Err() == nil; n++ {
		patch := fmt.Appendf(nil, `{"data":{"at":"%d"}}`, n)
		if err := persist(ctx, func() error {
			_, err := maps.Patch(ctx, "pulse", types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}); err != nil {
			return err
		}
		p.note(n)
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// pulseIn finds the number of a pulse in an object.
func pulseIn(object []byte) (n int64, ok bool) {
	_, rest, found := bytes.Cut(object, []byte(`"data":{"at":"`))
	if !found {
		return 0, false
	}
	digits, _, _ := bytes.Cut(rest, []byte(`"`))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}

// delays are sorted.
type delays []time.Duration

func (l delays) at(percentile int) time.Duration { return at(l, percentile) }

func (l delays) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v (%d)", l.at(50), l.at(99), l.at(100), len(l))
}

// latencies are the times from the pulses between two moments to when they were stored.
func (p *pulses) latencies(stored map[int64]time.Time, from, to time.Time) (list delays) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, then := range stored {
		if at, ok := p.sent[n]; ok && at.After(from) && at.Before(to) {
			list = append(list, max(0, then.Sub(at)))
		}
	}
	slices.Sort(list)
	return list
}

// stored is when the stream had each pulse first.
func stored(events []read.Event) map[int64]time.Time {
	first := map[int64]time.Time{}
	for i := range events {
		e := &events[i]
		n, ok := pulseIn(e.Data())
		if _, again := first[n]; ok && !again && e.Attribute("name") == "pulse" {
			first[n] = e.At
		}
	}
	return first
}

// churn creates, changes and deletes things of the well-behaved tenant until ctx ends.
func (d *definition) churn(ctx context.Context) error {
	things := d.things("v1")
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprint("thing-", i%5)
		calls := []func() error{func() error {
			_, err := things.Create(ctx, thing(d.group, name, i), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // its answer did not arrive
				return nil
			}
			return err
		}}
		for j := range 5 {
			patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, 1000+j)
			calls = append(calls, func() error {
				_, err := things.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				time.Sleep(20 * time.Millisecond)
				return err
			})
		}
		calls = append(calls, func() error {
			err := things.Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		for _, call := range calls {
			if err := persist(ctx, call); err != nil {
				return err
			}
		}
	}
	return nil
}

// String lists how often each kind of abuse came through.
func (h *hostile) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, what := range h.kinds {
		out = append(out, fmt.Sprintf("%s %d", what.name, h.taken[what.name]))
	}
	return strings.Join(out, ", ")
}

// missing are the kinds of abuse of which the API server took nothing.
func (h *hostile) missing() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range h.kinds {
		if h.taken[what.name] == 0 {
			names = append(names, what.name)
		}
	}
	return names
}
