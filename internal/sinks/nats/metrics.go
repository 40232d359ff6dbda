package nats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/sinks"
)

type metrics struct {
	messages    *prometheus.CounterVec
	duplicates  prometheus.Counter
	seconds     prometheus.Histogram
	strayAcks   *prometheus.CounterVec
	disconnects prometheus.Counter
	connected   prometheus.Gauge
}

const outcomeStored = "stored"

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_nats_messages_total",
			Help: "Messages given to Publish by what became of them: stored, or the class of their error.",
		}, []string{"outcome"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_nats_duplicates_total",
			Help: "Messages among the stored that the stream held already: resent after a lost ack or a restart.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "bridge_nats_publish_seconds",
			Help:    "Time of a Publish call, from its first message to its last answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		strayAcks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_nats_stray_acks_total",
			Help: "Answers that no message waited for: late (after its timeout), foreign (not from a stream).",
		}, []string{"reason"}),
		disconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_nats_disconnects_total",
			Help: "Connections that broke.",
		}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_nats_connected",
			Help: "1 while there is a connection.",
		}),
	}
	for _, outcome := range []string{outcomeStored, sinks.Retry.String(), sinks.Reconnect.String(), sinks.Refused.String(), sinks.Stopped.String()} {
		m.messages.WithLabelValues(outcome)
	}
	for _, reason := range []string{"late", "foreign"} {
		m.strayAcks.WithLabelValues(reason)
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.messages, m.duplicates, m.seconds, m.strayAcks, m.disconnects, m.connected} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
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
		m.messages.WithLabelValues(sinks.Classify(message.Err).String()).Inc()
	}
	m.messages.WithLabelValues(outcomeStored).Add(float64(stored))
}
