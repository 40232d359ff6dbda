package history

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/metric"
)

type metrics struct {
	stored   *metric.Counters
	bytes    *metric.Gauge
	horizon  *metric.Gauge
	failures *metric.Counter
}

const (
	kindVersion = "version"
	kindMark    = "mark"
	kindRepeat  = "repeat"
)

func newMetrics(registerer prometheus.Registerer) *metrics {
	f := metric.With(registerer)
	return &metrics{
		stored: f.Counters("bridge_history_stored_total",
			"Events stored as versions of objects or as marks of the stream, and repeats of "+
				"those that were there.",
			"kind", kindVersion, kindMark, kindRepeat),
		bytes: f.Gauge("bridge_history_bytes", "What the history takes on disk."),
		horizon: f.Gauge("bridge_history_horizon_timestamp_seconds",
			"Time from which on every version is kept; 0 while retention has removed nothing."),
		failures: f.Counter("bridge_history_retention_failures_total",
			"Times that old versions could not be removed."),
	}
}

func (m *metrics) count(s history.Stored) {
	m.stored.With(kindVersion).Add(float64(s.Versions))
	m.stored.With(kindMark).Add(float64(s.Marks))
	m.stored.With(kindRepeat).Add(float64(s.Repeats))
}

// measure reads how large the history is, and how far it goes back.
func (m *metrics) measure(db *history.DB) {
	m.bytes.Set(float64(db.Maintenance.DiskBytes()))
	horizon, err := db.Questions.Coverage.Horizon()
	switch {
	case err != nil: // questions and retention report it
	case horizon.IsZero():
		m.horizon.Set(0)
	default:
		m.horizon.Set(float64(horizon.Unix()))
	}
}
