package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/read"
)

// section returns a section of a configuration, to be changed in place.
func section(t *testing.T, of map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, key := range path {
		inner, ok := of[key].(map[string]any)
		if !ok {
			t.Fatalf("the example has no section %s", strings.Join(path, "."))
		}
		of = inner
	}
	return of
}

// example is config/bridge.example.yaml with the addresses and credentials of this test.
func example(t *testing.T, audit string) string {
	t.Helper()
	text, err := os.ReadFile("../../config/bridge.example.yaml")
	must(t, err)
	var c map[string]any
	must(t, yaml.Unmarshal(text, &c))
	for _, ours := range []string{"cluster", "kubernetes", "state", "admin", "log"} {
		delete(c, ours) // the harness writes these
	}
	sinks := map[string]map[string]any{}
	for _, sink := range c["sinks"].([]any) {
		s := sink.(map[string]any)
		sinks[s["name"].(string)] = s
	}
	if names := slices.Sorted(maps.Keys(sinks)); !slices.Equal(names, []string{"audit", "console", "functions", "history", "lake", "local", "shipped"}) {
		t.Fatalf("the example has the sinks %v", names)
	}
	nats := section(t, sinks["audit"], "nats")
	delete(nats, "tls")
	delete(nats, "credsFile")
	nats["servers"] = []string{audit}
	kafka := section(t, sinks["lake"], "kafka")
	delete(kafka, "tls")
	delete(kafka, "sasl")
	kafka["brokers"] = []string{"${KAFKA}"}
	topics := section(t, kafka, "createTopics")
	topics["replicationFactor"], section(t, topics, "config")["min.insync.replicas"] = 1, "1"
	local := section(t, sinks["local"], "nats")
	delete(local, "storeDir")
	local["servers"] = []string{"nats://${NATS_ADDRESS}"}
	functions := section(t, sinks["functions"], "http")
	delete(functions, "tls")
	endpoint := httptest.NewServer(http.NotFoundHandler()) // no informer sends to it
	t.Cleanup(endpoint.Close)
	functions["url"] = endpoint.URL
	delete(section(t, sinks["history"], "history"), "dir")
	section(t, sinks["shipped"], "file")["path"] = filepath.Join(t.TempDir(), "events.jsonl")
	changed, err := yaml.Marshal(c)
	must(t, err)
	return string(changed)
}

// TestExample runs the example configuration as it is, but for addresses and credentials.
func TestExample(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	broker := startKafka(t).ListenAddrs()[0]
	audit := startNATS(t, "")
	b := l.bridge("bridge", example(t, audit), with(map[string]string{"KAFKA": broker}))
	l.start(b)

	pods := l.client.CoreV1().Pods(l.namespace)
	for _, name := range []string{"goes", "fails"} {
		_, err := pods.Create(l.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "example"}},
			Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	failed, err := pods.Get(l.ctx, "fails", metav1.GetOptions{})
	must(t, err)
	failed.Status.Phase = corev1.PodFailed
	_, err = pods.UpdateStatus(l.ctx, failed, metav1.UpdateOptions{})
	must(t, err)
	must(t, pods.Delete(l.ctx, "goes", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	l.createConfigMap("settings", "1")

	about := func(events []read.Event, name string) (ops []string) {
		for i := range events {
			if e := &events[i]; e.Attribute("namespace") == l.namespace && e.Attribute("name") == name {
				ops = append(ops, e.Op())
			}
		}
		return ops
	}
	lake := kafkaReader(broker)
	var inLake []read.Event
	eventually(t, "every sink has what the example says", time.Minute, func() (problems []string) {
		want := func(sink string, events []read.Event, err error, name, op string) {
			if got := about(events, name); err != nil || len(got) == 0 || got[0] != op {
				problems = append(problems, fmt.Sprintf("%s: %s is %v (%v), want %s first", sink, name, got, err, op))
			}
		}
		events, err := (&read.JetStream{URL: audit, Stream: "K8S"}).Refresh(l.ctx)
		want("audit", events, err, "fails", "updated")
		want("audit", events, err, "goes", "deleted")
		inLake, err = lake.Refresh(l.ctx)
		want("lake", inLake, err, "goes", "deleted")
		events, err = jetStream(b).Refresh(l.ctx)
		if got := about(events, "settings"); err != nil || len(got) == 0 || got[0] != "added" {
			problems = append(problems, "local has no added settings")
		}
		return problems
	})
	for i := range inLake {
		if e := &inLake[i]; e.AboutObject() && e.Op() == "updated" {
			t.Errorf("lake has an update: %s", e.ID())
		}
		if e := &inLake[i]; e.AboutObject() && len(e.Data()) == 0 {
			t.Errorf("an event without data in the compacted topic deletes its key: %s", e.ID())
		}
	}
	for line := range strings.SplitSeq(b.Log.String(), "\n") {
		if strings.Contains(line, "filter") && strings.Contains(line, "WARN") {
			t.Error(line)
		}
	}
	l.stop(b)
}
