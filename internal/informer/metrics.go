package informer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
)

type metrics struct {
	changes    *prometheus.CounterVec
	skipped    prometheus.Counter
	gaps       *prometheus.CounterVec
	logBytes   prometheus.Gauge
	logChanges prometheus.Gauge
	capacity   prometheus.Gauge
	diskBytes  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, logBytes int) *metrics {
	m := &metrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_informer_changes_total", Help: "Changes decided by the controller, by op.",
		}, []string{"op"}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_informer_covered_total", Help: "Deltas that the settled state of their object covered already, so that they are no change.",
		}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_informer_gaps_total", Help: "Gaps told, by reason.",
		}, []string{"reason"}),
		logBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_informer_log_bytes", Help: "Bytes of changes in the log that are not settled by all listeners.",
		}),
		logChanges: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_informer_log_changes", Help: "Changes in the log that are not settled by all listeners.",
		}),
		diskBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_informer_spool_bytes", Help: "Bytes of changes that wait for sinks in the log on disk.",
		}),
		capacity: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_informer_log_capacity_bytes", Help: "Bytes that the log may hold before the controller waits.",
		}),
	}
	m.capacity.Set(float64(logBytes))
	for _, op := range []event.Op{event.Added, event.Updated, event.Deleted, event.Synced} {
		m.changes.WithLabelValues(string(op))
	}
	if reg != nil {
		reg.MustRegister(m.changes, m.skipped, m.gaps, m.logBytes, m.logChanges, m.capacity, m.diskBytes)
	}
	return m
}
