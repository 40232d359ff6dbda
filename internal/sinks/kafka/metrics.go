package kafka

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one sink.
type metrics struct {
	records     prometheus.Counter
	bytes       prometheus.Counter
	batches     *prometheus.CounterVec // by outcome
	resends     *prometheus.CounterVec // by reason
	recoveries  *prometheus.CounterVec // by result
	lost        prometheus.Counter
	damaged     prometheus.Counter
	connections prometheus.Counter
	seconds     prometheus.Histogram
	waiting     prometheus.Gauge
	unused      prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_kafka_records_total",
			Help: "Records that brokers have acknowledged, tombstones among them.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_kafka_bytes_total",
			Help: "Bytes of acknowledged record batches, after compression.",
		}),
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_kafka_batches_total",
			Help: "Record batches by what became of them: stored, refused, unanswered.",
		}, []string{"outcome"}),
		resends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_kafka_resends_total",
			Help: "Requests sent again, by the reason.",
		}, []string{"reason"}),
		recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_kafka_producer_recoveries_total",
			Help: "Times a broker had forgotten a lane's producer, by whether the batch on its way was found: stored, missing, unread; and batches of an earlier process that were stored after the start: late.",
		}, []string{"batch"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_kafka_acknowledged_lost_total",
			Help: "Times a partition's log ended before records that it had acknowledged (an unclean election, a re-created topic).",
		}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_kafka_damaged_batches_total",
			Help: "Batches of topics that could not be read back: damaged, or larger than any that the sink sends.",
		}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_kafka_connections_opened_total",
			Help: "Connections opened to brokers.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bridge_kafka_batch_seconds",
			Help: "Time from the first attempt to send a batch to its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 10),
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_kafka_lanes_resending",
			Help: "Lanes whose batch has been sent without an answer that settles it.",
		}),
		unused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_kafka_unused_partitions",
			Help: "Partitions that topics have got since an earlier run, and that get no events, so that those of an object stay in one.",
		}),
	}
	for _, outcome := range []string{"stored", "refused", "unanswered"} {
		m.batches.WithLabelValues(outcome)
	}
	for _, batch := range []string{"stored", "missing", "unread", "late"} {
		m.recoveries.WithLabelValues(batch)
	}
	if r != nil {
		r.MustRegister(m.records, m.bytes, m.batches, m.resends, m.recoveries, m.lost, m.damaged, m.connections, m.seconds, m.waiting, m.unused)
	}
	return m
}

// settled counts a batch that the broker has answered for good.
func (m *metrics) settled(outcome verdict, f *frozen, took time.Duration) {
	switch outcome {
	case stored:
		m.batches.WithLabelValues("stored").Inc()
		m.records.Add(float64(f.records))
		m.bytes.Add(float64(len(f.bytes)))
		m.seconds.Observe(took.Seconds())
	case refused:
		m.batches.WithLabelValues("refused").Inc()
	default:
		m.batches.WithLabelValues("unanswered").Inc()
	}
}
