package nats_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// counted is every counter and gauge of a registry, by name and label values.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if m.GetHistogram() == nil {
				values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	ts := newTestServer(t)
	registry := prometheus.NewPedanticRegistry()
	sink := ts.openSink(func(c *nats.Config) { c.Metrics = registry })
	mustStore(t, sink, ev("a", 1), ev("b", 1))
	mustStore(t, sink, ev("a", 1))
	_ = call(t, sink, sinktest.NewEvent("c", 1, 2<<20))
	want := map[string]float64{
		"bridge_nats_connected":                1,
		"bridge_nats_disconnects_total":        0,
		"bridge_nats_duplicates_total":         1,
		"bridge_nats_messages_total stored":    3,
		"bridge_nats_messages_total refused":   1,
		"bridge_nats_messages_total retry":     0,
		"bridge_nats_messages_total reconnect": 0,
		"bridge_nats_messages_total stopped":   0,
		"bridge_nats_stray_acks_total late":    0,
		"bridge_nats_stray_acks_total foreign": 0,

		"bridge_nats_stray_acks_total unordered":            0,
		"bridge_nats_unexpected_duplicates_total checked":   0,
		"bridge_nats_unexpected_duplicates_total forged":    0,
		"bridge_nats_unexpected_duplicates_total replaced":  0,
		"bridge_nats_unexpected_duplicates_total unchecked": 1,
	}
	if got := counted(t, registry); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSharedRegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, name := range []string{"audit", "lake"} {
		wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"sink": name}, registry)
		if _, err := nats.New(nats.Config{Cluster: "c", Metrics: wrapped}); err != nil {
			t.Errorf("sink %s: %v", name, err)
		}
	}
}
