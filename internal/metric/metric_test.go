package metric_test

import (
	"maps"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/testkit"
)

func expect(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	if got := testkit.Metrics(t, registry); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFactory(t *testing.T) {
	t.Run("every value of a label starts at zero", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		f := metric.With(registry)
		f.Counters("events_total", "Events.", "type", "added", "deleted").With("added").Inc()
		f.Gauges("unavailable", "Why.", "reason", "full", "read-only")
		f.CountersOf("dropped_total", "Dropped.", "sink", "reason")
		expect(t, registry, map[string]float64{
			"events_total added": 1, "events_total deleted": 0, "unavailable full": 0, "unavailable read-only": 0,
		})
	})
	t.Run("a metric is registered where it is made", func(t *testing.T) {
		registry, on := prometheus.NewPedanticRegistry(), true
		f := metric.With(registry)
		f.Counter("counter", "Counter.").Add(2)
		f.Gauge("gauge", "Gauge.").Set(3)
		f.Histogram("seconds", "Seconds.", []float64{1, 10}).Observe(4)
		f.GaugeFunc("read", "Read.", func() float64 { return 5 })
		metric.WithLabel(registry, "sink", "lake").FlagFunc("flag", "Flag.", func() bool { return on })
		expect(t, registry, map[string]float64{
			"counter": 2, "gauge": 3, "seconds_count": 1, "seconds_sum": 4, "read": 5, "flag lake": 1,
		})
		on = false
		expect(t, registry, map[string]float64{
			"counter": 2, "gauge": 3, "seconds_count": 1, "seconds_sum": 4, "read": 5, "flag lake": 0,
		})
	})
	t.Run("a value that is not known from the start has its own counter", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		errors := metric.With(registry).Counters("errors_total", "Errors.", "reason", "closed")
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				for range 1000 {
					errors.With("odd").Add(0.5)
				}
			})
		}
		g.Wait()
		expect(t, registry, map[string]float64{"errors_total closed": 0, "errors_total odd": 2000})
	})
	t.Run("counts are read back", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		gaps := metric.With(registry).Counters("gaps_total", "Gaps.", "reason", "expired", "rewound")
		gaps.With("expired").Inc()
		gaps.With("expired").Inc()
		expect(t, registry, map[string]float64{"gaps_total expired": 2, "gaps_total rewound": 0})
		if got := gaps.Counts(); !maps.Equal(got, map[string]int{"expired": 2}) {
			t.Errorf("counts %v, want 2 expired", got)
		}
	})
	t.Run("without a registerer it counts all the same", func(t *testing.T) {
		metric.With(nil).Counters("events_total", "Events.", "type", "added").With("added").Inc()
		metric.WithLabel(nil, "sink", "lake").GaugeFunc("read", "Read.", func() float64 { return 5 })
	})
}

func TestScope(t *testing.T) {
	t.Run("metrics are there from Begin to End", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		s := metric.NewScope(registry, prometheus.Labels{"sink": "lake"})
		metric.With(s).Gauge("early", "Early.").Set(1)
		expect(t, registry, map[string]float64{})
		s.Begin()
		metric.With(s).Gauge("late", "Late.").Set(2)
		expect(t, registry, map[string]float64{"early lake": 1, "late lake": 2})
		s.End()
		expect(t, registry, map[string]float64{})
	})
	t.Run("another begins under the same names after the end of one", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		before, after := metric.NewScope(registry, nil), metric.NewScope(registry, nil)
		metric.With(before).Gauge("queued", "Queued.").Set(1)
		before.Begin()
		metric.With(after).Gauge("queued", "Queued.").Set(2)
		before.End()
		after.Begin()
		expect(t, registry, map[string]float64{"queued": 2})
	})
	t.Run("those of one name in two scopes differ in the labels of the scopes", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		var scopes []*metric.Scope
		for _, resource := range []string{"pods", "nodes"} {
			s := metric.NewScope(registry, prometheus.Labels{"resource": resource})
			f := metric.With(s)
			f.Gauge("queued", "Queued.").Add(2)
			f.Counters("events_total", "Events.", "type", "added").With("added").Inc()
			metric.WithLabel(s, "sink", "lake").GaugeFunc("age", "Age.", func() float64 { return 3 })
			s.Begin()
			scopes = append(scopes, s)
		}
		expect(t, registry, map[string]float64{
			"queued pods": 2, "events_total pods added": 1, "age pods lake": 3,
			"queued nodes": 2, "events_total nodes added": 1, "age nodes lake": 3,
		})
		scopes[0].End()
		expect(t, registry, map[string]float64{"queued nodes": 2, "events_total nodes added": 1, "age nodes lake": 3})
	})
	t.Run("two scopes with the same metrics and labels are a mistake", func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		before, after := metric.NewScope(registry, nil), metric.NewScope(registry, nil)
		for _, s := range []*metric.Scope{before, after} {
			metric.With(s).Gauge("queued", "Queued.")
		}
		before.Begin()
		defer func() {
			if recover() == nil {
				t.Error("the second one begins")
			}
		}()
		after.Begin()
	})
	t.Run("without a registerer it has nothing", func(t *testing.T) {
		s := metric.NewScope(nil, nil)
		metric.With(s).Counter("events_total", "Events.").Inc()
		s.Begin()
		s.End()
		var none *metric.Scope
		none.Begin()
		none.End()
	})
}
