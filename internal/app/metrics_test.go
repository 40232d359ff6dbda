package app

import (
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/publisher/tracing"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// registered is what a metric is, without its values.
type registered struct {
	kind   string // counter, gauge or histogram; empty where it is not known
	help   string
	labels []string
}

// names collects what is registered, also of metrics that have no value yet.
type names struct {
	mu         sync.Mutex
	collectors []prometheus.Collector
}

var (
	fqName   = regexp.MustCompile(`fqName: "([^"]+)"`)
	ofHelp   = regexp.MustCompile(`help: ("(?:[^"\\]|\\.)*")`)
	ofLabels = regexp.MustCompile(`constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}`)
	oneLabel = regexp.MustCompile(`[a-z_]+(="[^"]*")?`)
)

// Register implements prometheus.Registerer.
func (n *names) Register(c prometheus.Collector) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.collectors = append(n.collectors, c)
	return nil
}

// describe adds the metrics of a collector to those that were found.
func describe(t *testing.T, c prometheus.Collector, found map[string]registered) {
	t.Helper()
	described := make(chan *prometheus.Desc, 64)
	go func() {
		defer close(described)
		c.Describe(described)
	}()
	kinds := kindsOf(c)
	for d := range described {
		text := d.String()
		name := fqName.FindStringSubmatch(text)[1]
		r := registered{kind: kinds[name]}
		if r.kind == "" && strings.HasSuffix(name, "_total") { // a vector without a value yet
			r.kind = "counter"
		}
		for _, list := range ofLabels.FindStringSubmatch(text)[1:] {
			for _, label := range oneLabel.FindAllString(list, -1) {
				label, _, _ = strings.Cut(label, "=")
				r.labels = append(r.labels, label)
			}
		}
		slices.Sort(r.labels)
		var err error
		if r.help, err = strconv.Unquote(ofHelp.FindStringSubmatch(text)[1]); err != nil {
			t.Fatal(err)
		}
		found[name] = r
	}
}

// kindsOf are the types of the metrics that a collector collects, by their names.
func kindsOf(c prometheus.Collector) map[string]string {
	kinds := map[string]string{}
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return kinds
	}
	families, _ := registry.Gather()
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return kinds
}

// MustRegister implements prometheus.Registerer.
func (n *names) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		_ = n.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (n *names) Unregister(prometheus.Collector) bool { return false }

// everyMetric assembles a bridge with every kind of sink, and gives its metrics with their labels.
func everyMetric(t *testing.T) map[string]registered {
	t.Helper()
	n := &names{}
	db, err := store.Open(statedb.Options{Registerer: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	env := sinks.Env{Cluster: "dev", StateDir: t.TempDir(), Out: io.Discard, Log: slog.New(slog.DiscardHandler)}
	c := bridge.Config{
		Cluster: "dev", DB: db, Registerer: n,
		Client: &reflector.Client{HTTP: &http.Client{}, Base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}},
		Units:  []informer.Config{{Informer: "all", Type: resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}},
	}
	replicas, standby := standsBy(t)
	env.Fence, env.Confirm, c.Standby = replicas.fence(), replicas.confirm(), standby
	text := `sinks:
  - {name: nats, nats: {servers: ["nats://127.0.0.1:1"]}}
  - {name: kafka, kafka: {brokers: ["127.0.0.1:1"]}}
  - {name: stdout, stdout: {}}
  - {name: history, history: {}}`
	parsed, err := config.Load(config.Options{Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range parsed.Sinks {
		env.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"sink": parsed.Sinks[i].Name}, n)
		sink, _, err := newSink(&parsed.Sinks[i], env)
		if err != nil {
			t.Fatal(err)
		}
		c.Sinks = append(c.Sinks, bridge.SinkConfig{Name: parsed.Sinks[i].Name, Sink: sink})
		c.Units[0].Sinks = append(c.Units[0].Sinks, informer.Binding{
			Sink: parsed.Sinks[i].Name, Latest: i == 0, // which has a metric of its own
		})
	}
	if _, err := bridge.New(c); err != nil {
		t.Fatal(err)
	}
	tail.New(n)
	if _, err := tracing.New(tracing.Config{Endpoint: "http://127.0.0.1:1", Registerer: n}); err != nil {
		t.Fatal(err)
	}
	newStarting("", newOutcome(n)).registerReadiness(n)
	newUndelivered(&config.State{Dir: t.TempDir(), MaxUndeliveredBytes: 1}, n)
	found := map[string]registered{}
	for _, c := range n.collectors { // now that all have their values
		describe(t, c, found)
	}
	return found
}

// remedies are, by metric, when to act on it and how: the lines of testdata/remedies.txt.
func remedies(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/remedies.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, remedy, ok := strings.Cut(line, " | ")
		if _, twice := found[name]; !ok || twice || strings.Contains(remedy, "|") {
			t.Errorf("remedies.txt: want a metric once, and its remedy: %q", line)
		}
		found[name] = remedy
	}
	return found
}

// TestMetricsRemedies: for every metric there is a line about when to act, and for nothing else.
// A metric that nobody knows what to do about helps nobody.
func TestMetricsRemedies(t *testing.T) {
	code, docs := everyMetric(t), remedies(t)
	for name := range code {
		if len(docs[name]) < 10 {
			t.Errorf("%s: testdata/remedies.txt has %q about when to act", name, docs[name])
		}
	}
	other := regexp.MustCompile("^see `(bridge_[a-z_]+)`$")
	for name, remedy := range docs {
		if _, there := code[name]; !there {
			t.Errorf("testdata/remedies.txt has %s, which there is not", name)
		}
		if m := other.FindStringSubmatch(remedy); m != nil && (docs[m[1]] == "" || other.MatchString(docs[m[1]])) {
			t.Errorf("%s: %s, which has no remedy of its own", name, remedy)
		}
	}
	if len(code) < 50 {
		t.Errorf("only %d metrics were found", len(code))
	}
}

// Labels have few values: what a configuration names, or one of a fixed set. Never an object, a
// subject or an error.
func TestLabelsAreBounded(t *testing.T) {
	configured := []string{"informer", "resource", "namespace", "sink", "lease"}
	fixed := []string{"op", "type", "reason", "class", "outcome", "form", "kind", "change", "batch", "result", "origin"}
	for name, metric := range everyMetric(t) {
		for _, label := range metric.labels {
			if !slices.Contains(configured, label) && !slices.Contains(fixed, label) {
				t.Errorf("%s has a label %s; add it to those with few values, if it is one", name, label)
			}
		}
	}
}

// What alerts and the dashboard ask for is there. What they mean is tested in tools/monitoring.
func TestQueriedMetrics(t *testing.T) {
	code := everyMetric(t)
	used := regexp.MustCompile(`\bbridge_[a-z_]+`)
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../deploy/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := used.FindAllString(string(text), -1)
		for _, name := range found {
			_, there := code[name]
			_, histogram := code[suffix.ReplaceAllString(name, "")]
			if !there && !histogram {
				t.Errorf("%s asks for %s, which there is not", file, name)
			}
		}
		if len(found) < 20 {
			t.Errorf("%s asks for %d metrics only", file, len(found))
		}
	}
}

// Metrics that no panel shows, and why: who needs one looks it up.
var unpanelled = map[string]string{
	"bridge_reflector_last_seen_timestamp_seconds": "the silence of the API server is shown, which is the time since then",
	"bridge_reflector_namespaces_total":            "with namespaceSelector only, and never a reason to act",
	"bridge_deltafifo_queued_deltas":               "the queue is shown in bytes, by which it is bounded",
	"bridge_informer_log_changes":                  "the same",
	"bridge_standby_redaction_key_differs":         "0 but for a mistake, which readiness and an alert report",
	"bridge_nats_connected":                        "bridge_publisher_connected is of all sinks",
	"bridge_checkpoint_objects_total":              "commits, what they take and what they write are shown",
	"bridge_catchup_objects_total":                 "how many objects are behind is shown",
	"bridge_catchup_requests_total":                "the same",
	"bridge_history_stored_total":                  "what a sink publishes is shown, and a history stores it",
	"bridge_history_horizon_timestamp_seconds":     "moves with the retention; its failures are shown",
	"bridge_tracing_spans_total":                   "with tracing only, which has a place of its own to be looked at",
	"bridge_tail_watchers":                         "about who looks at the status page, not about the bridge",
	"bridge_tail_dropped_total":                    "the same",
}

// Every metric is on the dashboard, or left out on purpose.
func TestDashboardMetrics(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	code := everyMetric(t)
	for name := range code {
		shown := regexp.MustCompile(`\b` + name + `(_bucket|_sum|_count)?\b`).Match(text)
		switch why := unpanelled[name]; {
		case !shown && why == "":
			t.Errorf("no panel shows %s: add one, or say why not", name)
		case shown && why != "":
			t.Errorf("%s is shown, and said to be left out", name)
		}
	}
	for name := range unpanelled {
		if _, there := code[name]; !there {
			t.Errorf("there is no %s any more", name)
		}
	}
}
