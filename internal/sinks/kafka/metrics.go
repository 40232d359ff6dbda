package kafka

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

// metrics of one sink.
type metrics struct {
	records     *metric.Counter
	bytes       *metric.Counter
	batches     *metric.Counters // by outcome
	resends     *metric.Counters // by reason
	recoveries  *metric.Counters // by result
	lost        *metric.Counter
	damaged     *metric.Counter
	connections *metric.Counter
	seconds     prometheus.Histogram
	waiting     *metric.Gauge
	unused      *metric.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := metric.With(r)
	return &metrics{
		records: f.Counter("bridge_kafka_records_total",
			"Records that brokers have acknowledged, tombstones among them."),
		bytes: f.Counter("bridge_kafka_bytes_total",
			"Bytes of acknowledged record batches, after compression."),
		batches: f.Counters("bridge_kafka_batches_total",
			"Record batches by their result: stored, refused, unanswered.",
			"outcome", "stored", "refused", "unanswered"),
		resends: f.Counters("bridge_kafka_resends_total",
			"Requests sent again, by the reason.",
			// and error codes of brokers
			"reason", "no leader", "not connected", "timeout", "connection lost"),
		recoveries: f.Counters("bridge_kafka_producer_recoveries_total",
			"Times a broker had forgotten a lane's producer, by whether the batch in flight was "+
				"found: stored, missing, unread; and batches of an earlier process that were "+
				"stored after the start: late.",
			"batch", "stored", "missing", "unread", "late"),
		lost: f.Counter("bridge_kafka_acknowledged_lost_total",
			"Times a partition's log ended before records that it had acknowledged (an unclean "+
				"election, a re-created topic)."),
		damaged: f.Counter("bridge_kafka_damaged_batches_total",
			"Batches of topics that could not be read back: damaged, or larger than any that the "+
				"sink sends."),
		connections: f.Counter("bridge_kafka_connections_opened_total",
			"Connections opened to brokers."),
		seconds: f.Histogram("bridge_kafka_batch_seconds",
			"Time from the first attempt to send a batch to its answer.",
			prometheus.ExponentialBuckets(0.001, 3, 10)),
		waiting: f.Gauge("bridge_kafka_lanes_resending",
			"Lanes that send a batch again because it has no final answer."),
		unused: f.Gauge("bridge_kafka_unused_partitions",
			"Partitions that topics have got since an earlier run, and that get no events, so "+
				"that those of an object stay in one."),
	}
}

// observe counts a batch that has got its final answer.
func (m *metrics) observe(result outcome, batch *inflightBatch, took time.Duration) {
	switch result {
	case stored:
		m.batches.With("stored").Inc()
		m.records.Add(float64(batch.records))
		m.bytes.Add(float64(len(batch.bytes)))
		m.seconds.Observe(took.Seconds())
	case refused:
		m.batches.With("refused").Inc()
	default:
		m.batches.With("unanswered").Inc()
	}
}
