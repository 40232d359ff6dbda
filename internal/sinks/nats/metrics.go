package nats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/sinks"
)

type metrics struct {
	messages    *metric.Counters
	duplicates  *metric.Counter
	unexpected  *metric.Counters
	seconds     prometheus.Histogram
	strayAcks   *metric.Counters
	disconnects *metric.Counter
	connected   *metric.Gauge
}

const outcomeStored = "stored"

func newMetrics(registerer prometheus.Registerer) *metrics {
	f := metric.With(registerer)
	return &metrics{
		messages: f.Counters("bridge_nats_messages_total",
			"Messages given to Publish by their result: stored, or the class of their error.",
			"outcome", outcomeStored, sinks.Retry.String(), sinks.Reconnect.String(),
			sinks.Refused.String(), sinks.Stopped.String()),
		duplicates: f.Counter("bridge_nats_duplicates_total",
			"Messages among the stored that the stream held already: resent after a lost ack or "+
				"a restart."),
		unexpected: f.Counters("bridge_nats_unexpected_duplicates_total",
			"Messages that the stream held already when this process sent them for the first "+
				"time: unchecked, "+
				"checked (of an earlier process), forged, or replaced in a bucket (both were sent "+
				"again).",
			"origin", originUnchecked, originChecked, originForged, originReplaced),
		seconds: f.Histogram("bridge_nats_publish_seconds",
			"Time of a Publish call, from its first message to its last answer.",
			prometheus.ExponentialBuckets(0.0005, 2, 15)),
		strayAcks: f.Counters("bridge_nats_stray_acks_total",
			"Answers that were not believed: late (after the timeout), foreign (not from the "+
				"stream, or not possible), "+
				"unordered (of a sequence that the stream has passed; the message is sent again).",
			"reason", late.String(), foreign.String(), unordered.String()),
		disconnects: f.Counter("bridge_nats_disconnects_total", "Connections that broke."),
		connected:   f.Gauge("bridge_nats_connected", "1 while there is a connection."),
	}
}

// published counts the answers of one call.
func (m *metrics) published(batch []*sinks.Message, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	stored := 0
	for _, message := range batch {
		if message.Err == nil {
			stored++
			continue
		}
		m.messages.With(sinks.Classify(message.Err).String()).Inc()
	}
	m.messages.With(outcomeStored).Add(float64(stored))
}
