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
	"github.com/kubebridge/bridge/internal/app/sinkmaker"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/publisher/tracing"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
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
	maker := &sinkmaker.Maker{Cluster: "dev", StateDir: t.TempDir(), Out: io.Discard, Log: slog.New(slog.DiscardHandler)}
	c := bridge.Config{
		Cluster: "dev", DB: db, Registerer: n,
		Client: &reflector.Client{HTTP: &http.Client{}, Base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}},
		Units:  []informer.Config{{Informer: "all", Type: resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}},
	}
	replicas, standby := standsBy(t)
	maker.Fence, maker.Confirm, c.Standby = replicas.fence(), replicas.confirm(), standby
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
		maker.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"sink": parsed.Sinks[i].Name}, n)
		sink, _, err := maker.Make(&parsed.Sinks[i])
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

var (
	metricsTable = regexp.MustCompile(`(?s)\n## Metrics\n(.*?)\n## `)
	firstColumn  = regexp.MustCompile("(?m)^\\| (`.*?) \\|")
	metricName   = regexp.MustCompile("`(bridge_[a-z]+)?(_[a-z_]+)")
)

// documented are the names in the table of docs/operations.md. A name that begins with an
// underscore belongs to the stage before it.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	table := metricsTable.FindSubmatch(text)
	if table == nil {
		t.Fatal("docs/operations.md has no section Metrics")
	}
	found := map[string]bool{}
	for _, column := range firstColumn.FindAllStringSubmatch(string(table[1]), -1) {
		stage := ""
		for _, name := range metricName.FindAllStringSubmatch(column[1], -1) {
			if name[1] != "" {
				stage = name[1]
			}
			found[stage+name[2]] = true
		}
	}
	return found
}

// Every metric is in the table of operations.md, and nothing else is.
func TestMetricsTable(t *testing.T) {
	code, docs := everyMetric(t), documented(t)
	for name := range code {
		if !docs[name] {
			t.Errorf("%s is not in docs/operations.md", name)
		}
	}
	for name := range docs {
		if _, there := code[name]; !there {
			t.Errorf("docs/operations.md has %s, which there is not", name)
		}
	}
	if len(code) < 50 {
		t.Errorf("only %d metrics were found", len(code))
	}
}

// Every row of the table says what to do.
// A metric that nobody knows what to do about helps nobody.
func TestMetricsRemedies(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRow.FindAllStringSubmatch(metricsTable.FindStringSubmatch(string(text))[1], -1)
	for _, row := range rows {
		if len(row[2]) < 10 || len(row[3]) < 10 {
			t.Errorf("%s: what it is is %q, what to do %q", row[1], row[2], row[3])
		}
	}
	if len(rows) < 40 {
		t.Errorf("only %d rows were found", len(rows))
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| (`.*?) \\| (.*) \\| ?(.*?) ?\\|$")

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

// What alerts and the dashboard ask for is there. What they mean is tested in test/monitoring.
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
	docs := documented(t)
	for name := range docs {
		shown := regexp.MustCompile(`\b` + name + `(_bucket|_sum|_count)?\b`).Match(text)
		switch why := unpanelled[name]; {
		case !shown && why == "":
			t.Errorf("no panel shows %s: add one, or say why not", name)
		case shown && why != "":
			t.Errorf("%s is shown, and said to be left out", name)
		}
	}
	for name := range unpanelled {
		if !docs[name] {
			t.Errorf("there is no %s any more", name)
		}
	}
}
