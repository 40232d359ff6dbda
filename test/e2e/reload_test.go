package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// reloadConfig is a configuration in which one informer, steady, and its sink never change.
// Changing it is what a test does.
type reloadConfig struct {
	memory int  // of the queue of the informer moving, MiB; 0 for no such informer
	retry  int  // of the sink kafka, s
	more   bool // an informer more
}

func (c reloadConfig) String() string {
	var s strings.Builder
	s.WriteString("reloadInterval: 0s\ninformers:\n  - {name: steady, resources: [configmaps], namespaces: [\"${NS}\"], sinks: [{name: js}]}\n")
	if c.memory > 0 {
		fmt.Fprintf(&s, "  - {name: moving, resources: [podtemplates], namespaces: [\"${NS}\"], queue: {memory: %dMiB}, sinks: [{name: js}, {name: kafka}]}\n", c.memory)
	}
	if c.more {
		s.WriteString("  - {name: more, resources: [limitranges], namespaces: [\"${NS}\"], sinks: [{name: js}]}\n")
	}
	s.WriteString("sinks:\n  - {name: js, nats: {servers: [\"nats://${NATS_ADDRESS}\"], embedded: true}}\n")
	fmt.Fprintf(&s, "  - {name: kafka, kafka: {brokers: [\"${KAFKA}\"], createTopics: {partitions: 4, replicationFactor: 1}}, retry: {max: %ds}}\n", c.retry)
	return s.String()
}

// Informers are added, changed and removed, a sink is replaced, files are bad, while everything
// changes: nothing is lost, repeated or reordered, and the informer that has not changed neither
// sends a request nor is slower.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	collections := []truth.Collection{truth.Core("configmaps", l.namespace), truth.Core("podtemplates", l.namespace), truth.Core("limitranges", l.namespace)}
	ledger := l.witness(collections...)
	broker := startKafka(t).ListenAddrs()[0]
	now := reloadConfig{memory: 8, retry: 20}
	b := l.bridge("bridge", now.String(), with(map[string]string{"KAFKA": broker}))
	l.start(b)
	eventually(t, "the bridge has a position to resume from", testPatience, func() []string { return withoutPosition(l.ctx, b) })
	place := l.end()

	work, stopWork := context.WithCancel(l.ctx)
	defer stopWork()
	var g errgroup.Group
	for i := range 3 {
		g.Go(func() error { return churnTemplates(work, l, i) })
	}
	g.Go(func() error { return pulse(work, l) })
	quiet, endQuiet := time.Now(), busyness(t)
	time.Sleep(5 * time.Second)
	busyBefore := endQuiet()
	busy, endBusy := time.Now(), busyness(t)

	reload := func(c reloadConfig, want string) {
		t.Helper()
		must(t, b.Configure(c.String()))
		out, err := b.Output(l.ctx, "reload")
		must(t, err)
		if !strings.Contains(out, want) {
			t.Errorf("reload: %s, want %s", strings.TrimSpace(out), want)
		}
		now = c
	}
	reloads := 0
	for i := range 3 {
		reload(reloadConfig{memory: 9 + i, retry: now.retry, more: now.more}, "1 restarted")
		reload(reloadConfig{memory: now.memory, retry: 21 + i, more: now.more}, "1 replaced")
		reload(reloadConfig{memory: now.memory, retry: now.retry, more: !now.more}, "resources: ")
		must(t, b.WaitReady(l.ctx)) // else what is created now is in the first list
		must(t, l.limitRange(fmt.Sprint("range-", i), now.more))
		refusedReload(t, l, b, "informers: [{name: steady, resorces: [configmaps]}]", "resorces")
		reload(reloadConfig{retry: now.retry, more: now.more}, "1 stopped")
		time.Sleep(300 * time.Millisecond)
		reload(reloadConfig{memory: now.memory + 8, retry: now.retry, more: now.more}, "1 started")
		reloads += 6
	}
	calm := time.Now()
	slower := max(1, endBusy()/busyBefore) // tests run beside this one
	time.Sleep(time.Second)
	stopWork()
	must(t, g.Wait())

	names := map[string]string{"configmaps": "steady", "podtemplates": "moving", "limitranges": "more"}
	events := l.complete("JetStream", jetStream(b), ledger, check.Options{Informers: names})
	onlyMoving := check.Options{Informers: names, Only: func(resource, _, _ string) bool { return resource == "podtemplates" }}
	l.complete("Kafka, which knows no ids", kafkaReader(broker), ledger, onlyMoving)
	for _, r := range l.requestsSince(place) {
		isProbe := r.Verb == "list" && r.Query("limit") == "1" // of the version clock
		if r.Resource == "configmaps" && r.Verb != "get" && !isProbe {
			t.Errorf("the informer that has not changed made a request: %s", r)
		}
		if r.Verb == "list" && r.Resource == "podtemplates" && !isProbe {
			t.Errorf("the informer that has changed made a list: %s", r)
		}
	}
	before, during := latencies(t, events, quiet, busy), latencies(t, events, busy, calm)
	t.Logf("%d changes, %d reloads; latency of the informer that has not changed: p50 %v, p99 %v, max %v (%d) before, p50 %v, p99 %v, max %v (%d) during",
		len(ledger.Changes()), reloads, at(before, 50), at(before, 99), at(before, 100), len(before), at(during, 50), at(during, 99), at(during, 100), len(during))
	// The machine has other things to do: only what a second stop of the informer would cost is
	// distinguished from noise.
	if len(before) < 20 || len(during) < 20 ||
		float64(at(during, 50)) > slower*float64(5*at(before, 50)+50*time.Millisecond) {
		t.Errorf("the latency of the informer that has not changed: %v before, %v during", at(before, 50), at(during, 50))
	}
	l.verified(b, "JetStream", jetStream(b))
	l.stop(b)
	l.complete("Kafka, after the stop", kafkaReader(broker), ledger, onlyMoving)
	l.verified(b, "Kafka", kafkaReader(broker))
}

// refusedReload writes a bad file, and sees that the bridge refuses it with these words and runs
// on.
func refusedReload(t *testing.T, l *lab, b *harness.Bridge, yaml, words string) {
	t.Helper()
	must(t, b.Configure("reloadInterval: 0s\n"+yaml))
	place := b.Log.Len()
	must(t, b.Signal(syscall.SIGHUP))
	eventually(t, "the bad file is refused", testPatience, func() []string {
		if log := b.Log.Since(place); !strings.Contains(log, "refused") || !strings.Contains(log, words) {
			return []string{log}
		}
		return nil
	})
}

// limitRange makes one while an informer of them is there, and takes it away again.
func (l *lab) limitRange(name string, there bool) error {
	if !there {
		return nil
	}
	ranges := l.client.CoreV1().LimitRanges(l.namespace)
	if _, err := ranges.Create(l.ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return ranges.Delete(l.ctx, name, metav1.DeleteOptions{})
}

// churnTemplates changes a PodTemplate, of which no controller knows, until ctx ends.
func churnTemplates(ctx context.Context, l *lab, number int) error {
	templates, name := l.client.CoreV1().PodTemplates(l.namespace), fmt.Sprint("template-", number)
	for i := 0; ctx.Err() == nil; i++ {
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		t.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "app"}}
		if _, err := templates.Create(ctx, t, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return ignoreEnd(ctx, err)
		}
		for j := range 8 {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d","value":"%d"}}}`, i, j)
			if _, err := templates.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return ignoreEnd(ctx, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := templates.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pulse writes the time into a ConfigMap, until ctx ends.
func pulse(ctx context.Context, l *lab) error {
	maps := l.client.CoreV1().ConfigMaps(l.namespace)
	if _, err := maps.Create(ctx, configMap("pulse", nil), metav1.CreateOptions{}); err != nil {
		return ignoreEnd(ctx, err)
	}
	for ctx.Err() == nil {
		patch := fmt.Appendf(nil, `{"data":{"at":"%d"}}`, time.Now().UnixNano())
		if _, err := maps.Patch(ctx, "pulse", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return ignoreEnd(ctx, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// latencies are the times from the pulses between two moments to where JetStream had them, sorted.
// The API server's part is in them.
func latencies(t *testing.T, events []read.Event, from, to time.Time) (list []time.Duration) {
	t.Helper()
	for i := range events {
		e := &events[i]
		if e.Attribute("name") != "pulse" {
			continue
		}
		var obj corev1.ConfigMap
		must(t, json.Unmarshal(e.Data(), &obj))
		nanos, err := strconv.ParseInt(obj.Data["at"], 10, 64)
		if err != nil {
			continue // it has just been made
		}
		if sent := time.Unix(0, nanos); sent.After(from) && sent.Before(to) {
			list = append(list, e.At.Sub(sent))
		}
	}
	slices.Sort(list)
	return list
}

// at is a percentile of what is sorted.
func at(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Round(10 * time.Microsecond)
}
