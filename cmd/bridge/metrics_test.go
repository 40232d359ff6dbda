package main

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/tail"
)

// names collects the names of what is registered, also of metrics that have no value yet.
type names struct {
	mu    sync.Mutex
	found map[string]bool
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register implements prometheus.Registerer.
func (n *names) Register(c prometheus.Collector) error {
	described := make(chan *prometheus.Desc, 64)
	go func() {
		defer close(described)
		c.Describe(described)
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	for d := range described {
		n.found[fqName.FindStringSubmatch(d.String())[1]] = true
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (n *names) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		_ = n.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (n *names) Unregister(prometheus.Collector) bool { return false }

// everyMetric assembles a bridge with every kind of sink, and gives the names of its metrics.
func everyMetric(t *testing.T) map[string]bool {
	t.Helper()
	n := &names{found: map[string]bool{}}
	db, err := store.Open(store.Options{Registerer: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	newOutcome(n)
	maker := newMaker(t)
	maker.registry = n
	c := bridge.Config{
		Cluster: "dev", DB: db, Registerer: n,
		Client: &reflector.Client{HTTP: &http.Client{}, Base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}},
		Units:  []bridge.UnitConfig{{Informer: "all", Type: resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}},
	}
	maker.replicas, c.Standby = standsBy(t)
	text := `sinks:
  - {name: nats, nats: {url: "nats://127.0.0.1:1"}}
  - {name: kafka, kafka: {brokers: ["127.0.0.1:1"]}}
  - {name: stdout, stdout: {}}`
	parsed, err := config.Load(config.Options{Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range parsed.Sinks {
		sink, _, err := maker.make(&parsed.Sinks[i])
		if err != nil {
			t.Fatal(err)
		}
		c.Sinks = append(c.Sinks, bridge.SinkConfig{Name: parsed.Sinks[i].Name, Sink: sink})
		c.Units[0].Sinks = append(c.Units[0].Sinks, bridge.BindingConfig{Sink: parsed.Sinks[i].Name})
	}
	if _, err := bridge.New(c); err != nil {
		t.Fatal(err)
	}
	tail.New(n)
	newStarting(newOutcome(nil)).registerReadiness(n)
	return n.found
}

var (
	metricsTable = regexp.MustCompile(`(?s)\n## Metrics\n(.*?)\n## `)
	firstColumn  = regexp.MustCompile("(?m)^\\| (`.*?) \\|")
	metricName   = regexp.MustCompile("`(bridge_[a-z]+)?(_[a-z_]+)")
)

// documented are the names in the table of docs/operations.md. A name that begins with an underscore belongs to the stage before it.
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

func TestEveryMetricIsInTheOperationsTable(t *testing.T) {
	code, docs := everyMetric(t), documented(t)
	for name := range code {
		if !docs[name] {
			t.Errorf("%s is not in docs/operations.md", name)
		}
	}
	for name := range docs {
		if !code[name] {
			t.Errorf("docs/operations.md has %s, which there is not", name)
		}
	}
	if len(code) < 50 {
		t.Errorf("only %d metrics were found", len(code))
	}
}
