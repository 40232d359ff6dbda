package e2e_test

import (
	"bufio"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	abuseTime  = flag.Duration("abuse.time", 30*time.Second, "how long TestAbuse has a hostile tenant; make test-abuse takes 10 minutes")
	abuseJudge = flag.Bool("abuse.judge", false, "whether TestAbuse fails for the other tenant's latency, which needs a machine without other work")
)

// abused is a control plane of its own: what a hostile tenant leaves behind is no other test's.
var abused = startOnce("abused")

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

// What the well-behaved tenant may notice. A latency of some milliseconds doubles by itself, so
// there is a floor.
const (
	abuseFactor = 2
	abuseFloor  = 50 * time.Millisecond
	abuseMemory = 512 * mib // half of what the chart allows
)

// TestAbuse has a tenant write whatever the API server takes, beside a tenant whose events must
// stay complete, in order and as fast as before.
func TestAbuse(t *testing.T) {
	l := newLab(t, abused(t))
	good := l.definition()
	good.define("v1:stored")
	evil := newHostile(l, good.group)
	// The hostile tenant's topics are missing but for that of objects without a team.
	broker := startKafka(t, kfake.SeedTopics(1, "team.good", "team.-")).ListenAddrs()[0]
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

	work, stop := context.WithCancel(l.ctx)
	defer stop()
	var g errgroup.Group
	p := &pulses{sent: map[int64]time.Time{}}
	g.Go(func() error { return p.run(work, l) })
	g.Go(func() error { return p.watch(work, l) })
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
	peace()
	wait()
	stop()
	must(t, g.Wait())

	reader := &read.JetStream{URL: b.NATS, Stream: "K8S", Filter: "k8s.*.*.*.*." + l.namespace + ".>"}
	only := func(_, namespace, _ string) bool { return namespace == l.namespace }
	events := l.completeWithin(2*time.Minute, "the other tenant's events", reader, ledger,
		check.Options{Informers: informerOf("app", collections...), Only: only})
	before, during := p.latencies(events, quiet, busy), p.latencies(events, busy, calm)
	t.Logf("%d changes of the other tenant; latency from a plain watch to the stream: p50 %v, p99 %v, max %v (%d) in quiet, p50 %v, p99 %v, max %v (%d) under abuse; memory at most %d MiB",
		ledger.Len(), at(before, 50), at(before, 99), at(before, 100), len(before), at(during, 50), at(during, 99), at(during, 100), len(during), memory/mib)
	t.Logf("the bridge took %.1f s of processor time for %v of abuse", cpu, *abuseTime)
	t.Logf("what the API server took of the hostile tenant: %s", evil)
	for _, what := range evil.missing() {
		t.Errorf("nothing of the hostile tenant's %s came through: it shows nothing", what)
	}
	if *abuseJudge && at(during, 99) > abuseFactor*at(before, 99)+abuseFloor {
		t.Errorf("the other tenant's p99 is %v in quiet and %v under abuse", at(before, 99), at(during, 99))
	}
	if len(before) < 20 || len(during) < 20 {
		t.Errorf("only %d and %d changes were timed", len(before), len(during))
	}
	if limit := abuseMemory * raceFactor(); memory > limit {
		t.Errorf("the bridge has %d MiB, the bound is %d", memory/mib, limit/mib)
	}
	if now := metric(t, l, b, "process_start_time_seconds"); now != born || !b.Running() {
		t.Error("the bridge was restarted")
	}
	l.stop(b)
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
		if _, err := maps.Patch(ctx, "pulse", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return ignoreEnd(ctx, err)
		}
		p.note(n)
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// watch reads the lines of a watch of all ConfigMaps, and keeps none.
func (p *pulses) watch(ctx context.Context, l *lab) error {
	for ctx.Err() == nil {
		stream, err := l.client.CoreV1().RESTClient().Get().Resource("configmaps").Param("watch", "true").Stream(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for lines := bufio.NewReaderSize(stream, 4<<20); ; {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				break
			}
			if n, ok := pulseIn(line); ok && bytes.Contains(line[:min(len(line), 300)], []byte(`"name":"pulse"`)) {
				p.note(n)
			}
		}
		stream.Close()
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

// latencies are the times from the pulses between two moments to where the stream had them, sorted.
func (p *pulses) latencies(events []read.Event, from, to time.Time) (list []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		e := &events[i]
		if e.Attribute("name") != "pulse" {
			continue
		}
		n, ok := pulseIn(e.Data())
		if at := p.sent[n]; ok && at.After(from) && at.Before(to) {
			list = append(list, max(0, e.At.Sub(at)))
		}
	}
	slices.Sort(list)
	return list
}

// churn creates, changes and deletes things of the well-behaved tenant until ctx ends.
func (d *definition) churn(ctx context.Context) error {
	things := d.things("v1")
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprint("thing-", i%5)
		if _, err := things.Create(ctx, thing(d.group, name, i), metav1.CreateOptions{}); err != nil {
			return ignoreEnd(ctx, err)
		}
		for j := range 5 {
			patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, 1000+j)
			if _, err := things.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return ignoreEnd(ctx, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := things.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return ignoreEnd(ctx, err)
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
