package changelog

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

type metrics struct {
	bytes, entries, diskBytes *metric.Gauge
	dropped                   *prometheus.CounterVec
}

// droppedSpoolFull is the one reason for which a change is dropped.
const droppedSpoolFull = "spool-full"

func newMetrics(cfg *Config) *metrics {
	f := metric.With(cfg.Registerer)
	m := &metrics{
		bytes: f.Gauge("bridge_informer_log_bytes",
			"Bytes of changes in the log that are not settled by all listeners."),
		entries: f.Gauge("bridge_informer_log_changes",
			"Changes in the log that are not settled by all listeners."),
		diskBytes: f.Gauge("bridge_informer_spool_bytes",
			"Bytes of changes that wait for sinks in the log on disk."),
		dropped: f.CountersOf("bridge_informer_dropped_total",
			"Events dropped before a sink had them, by sink and reason.",
			"sink", "reason"),
	}
	f.Gauge("bridge_informer_log_capacity_bytes",
		"Bytes that the log may hold before the controller waits.",
	).Set(float64(cfg.MemoryBytes))
	f.Gauge("bridge_informer_spool_capacity_bytes",
		"Bytes of changes that may wait on disk, before reading stops or the oldest are dropped; "+
			"0 where nothing goes to disk.",
	).Set(float64(max(0, cfg.SpoolBytes)))
	for _, sink := range cfg.Listeners {
		m.dropped.WithLabelValues(sink, droppedSpoolFull)
	}
	return m
}
