package checkpoint

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	commits *prometheus.CounterVec
	objects prometheus.Counter
	bytes   prometheus.Counter
	seconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_checkpoint_commits_total", Help: "Commits to the state database, by outcome.",
		}, []string{"outcome"}),
		objects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_checkpoint_objects_total", Help: "Settled objects written.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_checkpoint_written_bytes_total", Help: "Bytes of commits handed to the state database.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bridge_checkpoint_commit_seconds", Help: "Time a commit takes, the fsync included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}),
	}
	for _, outcome := range []string{"ok", "failed"} {
		m.commits.WithLabelValues(outcome)
	}
	if reg != nil {
		reg.MustRegister(m.commits, m.objects, m.bytes, m.seconds)
	}
	return m
}

func (m *metrics) committed(objects, bytes int, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.commits.WithLabelValues(outcome).Inc()
	m.objects.Add(float64(objects))
	m.bytes.Add(float64(bytes))
	m.seconds.Observe(took.Seconds())
}
