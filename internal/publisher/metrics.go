package publisher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Outcomes of a refused message.
const (
	outcomeSent    = "sent"    // it is in the dead letters
	outcomeKept    = "kept"    // there is no place for dead letters, or it has refused it for too long; it was kept elsewhere
	outcomeDropped = "dropped" // there is no place for dead letters, and it could not be kept
	outcomeRefused = "refused" // the place refused it; it is asked again
)

type metrics struct {
	published   prometheus.Counter
	recalled    prometheus.Counter
	retries     map[sinks.Class]prometheus.Counter
	deadLetters map[string]prometheus.Counter
	oversized   map[Oversize]prometheus.Counter
	rateLimited prometheus.Counter
	panics      prometheus.Counter
	delivery    prometheus.Histogram
	seconds     prometheus.Histogram
	messages    prometheus.Histogram
}

// newMetrics makes the metrics and, with a registerer, registers them. Every label value exists from the start.
func newMetrics(registerer prometheus.Registerer, p *Publisher) *metrics {
	auto := promauto.With(registerer)
	m := &metrics{
		published: auto.NewCounter(prometheus.CounterOpts{
			Name: "bridge_publisher_published_total",
			Help: "Messages that the sink acknowledged.",
		}),
		recalled: auto.NewCounter(prometheus.CounterOpts{
			Name: "bridge_publisher_recalled_total",
			Help: "Messages not sent again after a restart, since the sink held them already.",
		}),
		delivery: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "bridge_publisher_delivery_seconds",
			Help:    "How long after the bridge has observed a change the sink has acknowledged its event, what waited on disk included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 12), // to 70 minutes
		}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "bridge_publisher_publish_seconds",
			Help:    "How long one call of the sink took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		messages: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "bridge_publisher_batch_messages",
			Help:    "Messages in one call of the sink.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		retries:     map[sinks.Class]prometheus.Counter{},
		deadLetters: map[string]prometheus.Counter{},
		oversized:   map[Oversize]prometheus.Counter{},
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "bridge_publisher_panics_total",
			Help: "Panics during the work on one event. An event that could not be made is a dead letter with the reason panic; the log has the stack.",
		}),
		rateLimited: auto.NewCounter(prometheus.CounterOpts{
			Name: "bridge_publisher_rate_limited_seconds_total",
			Help: "How long batches that were ready have waited for the rate limit, over all callers of the sink.",
		}),
	}
	retries := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "bridge_publisher_retries_total",
		Help: "Lanes sent back by a failure, by its class.",
	}, []string{"class"})
	for _, class := range []sinks.Class{sinks.Retry, sinks.Reconnect} {
		m.retries[class] = retries.WithLabelValues(class.String())
	}
	deadLetters := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "bridge_publisher_dead_letters_total",
		Help: "Messages that the sink refused for good: sent to the dead letters, kept in the state directory, dropped (neither could be done); refused counts the attempts that the place did not take.",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeSent, outcomeKept, outcomeDropped, outcomeRefused} {
		m.deadLetters[outcome] = deadLetters.WithLabelValues(outcome)
	}
	oversized := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "bridge_publisher_oversized_total",
		Help: "Events too large for the broker that were sent in a smaller form: trim, claim, reference. Those without one are dead letters.",
	}, []string{"form"})
	for _, way := range Oversizes {
		m.oversized[way] = oversized.WithLabelValues(string(way))
	}
	gauges(auto, p)
	return m
}

// gauges are read from the publisher when somebody asks.
func gauges(auto promauto.Factory, p *Publisher) {
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "bridge_publisher_" + name, Help: help}, value)
	}
	gauge("queued_items", "Items added and not settled.", func() float64 {
		items, _ := p.room.load()
		return float64(items)
	})
	gauge("queued_bytes", "Bytes added and not settled.", func() float64 {
		_, bytes := p.room.load()
		return float64(bytes)
	})
	gauge("capacity_items", "Bound on queued items.", func() float64 { return float64(p.room.maxItems) })
	gauge("capacity_bytes", "Bound on queued bytes.", func() float64 { return float64(p.room.maxBytes) })
	gauge("delayed_lanes", "Lanes that wait for the end of their retry's backoff.", func() float64 { return float64(p.queue.Delayed()) })
	gauge("unrouted_objects", "Objects whose lane the sink can't tell yet.", func() float64 { return float64(p.asideCount.Load()) })
	gauge("oldest_seconds", "How long the oldest queued item has waited.", func() float64 { return p.age().Seconds() })
	gauge("paused", "1 while an operator has paused the sink.", func() float64 {
		if p.breaker.isHeld() {
			return 1
		}
		return 0
	})
	gauge("blocked", "1 while some messages can't go until somebody acts, although the broker is there: a missing topic.", func() float64 {
		if why := p.blocked(); why != nil && sinks.Classify(why) != sinks.Reconnect {
			return 1
		}
		return 0
	})
	gauge("connected", "1 when the sink is open and its broker is not known to be away.", func() float64 {
		if p.isOpen() && p.connected() {
			return 1
		}
		return 0
	})
}

// delivered notes how long what the sink has acknowledged was on its way.
func (m *metrics) delivered(settled []*Item, now time.Time) {
	for _, it := range settled {
		if at := it.Message.Event.Observed; it.Outcome() == Acknowledged && !at.IsZero() {
			m.delivery.Observe(now.Sub(at).Seconds())
		}
	}
}

// call notes a call of the sink; what it returns ends it.
func (m *metrics) call(messages int) (done func()) {
	start := time.Now()
	m.messages.Observe(float64(messages))
	return func() { m.seconds.Observe(time.Since(start).Seconds()) }
}
