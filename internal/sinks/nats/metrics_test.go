package nats_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestMetrics(t *testing.T) {
	ts := newTestServer(t)
	registry := prometheus.NewPedanticRegistry()
	sink := ts.openSink(func(c *nats.Options) { c.Registry = registry })
	mustStore(t, sink, ev("a", 1), ev("b", 1))
	mustStore(t, sink, ev("a", 1))
	_ = call(t, sink, sinktest.NewEvent("c", 1, 2<<20))
	want := map[string]float64{
		"bridge_nats_connected":                1,
		"bridge_nats_disconnects_total":        0,
		"bridge_nats_duplicates_total":         1,
		"bridge_nats_repaired_keys_total":      0,
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
	got := testkit.Metrics(t, registry)
	maps.DeleteFunc(got, func(name string, _ float64) bool {
		return strings.HasPrefix(name, "bridge_nats_publish_seconds_")
	})
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSharedRegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, name := range []string{"audit", "lake"} {
		wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"sink": name}, registry)
		o := optionsFor("nats://127.0.0.1:4222")
		o.Registry = wrapped
		if _, err := nats.New(o); err != nil {
			t.Errorf("sink %s: %v", name, err)
		}
	}
}
