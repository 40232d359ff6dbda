package checkpoint

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

type metrics struct {
	commits *metric.Counters
	objects *metric.Counter
	bytes   *metric.Counter
	seconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := metric.With(reg)
	return &metrics{
		commits: m.Counters("bridge_checkpoint_commits_total",
			"Commits to the state database, by outcome.",
			"outcome", "ok", "failed"),
		objects: m.Counter("bridge_checkpoint_objects_total", "Settled objects written."),
		bytes: m.Counter("bridge_checkpoint_written_bytes_total",
			"Bytes of commits handed to the state database."),
		seconds: m.Histogram("bridge_checkpoint_commit_seconds",
			"Time a commit takes, the fsync included.",
			prometheus.ExponentialBuckets(0.0005, 4, 8)),
	}
}

func (m *metrics) committed(objects, bytes int, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.commits.With(outcome).Inc()
	m.objects.Add(float64(objects))
	m.bytes.Add(float64(bytes))
	m.seconds.Observe(took.Seconds())
}
