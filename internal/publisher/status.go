package publisher

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Status is the state of a publisher at one moment.
type Status struct {
	Opened        bool      `json:"opened"`        // the sink was opened
	Connected     bool      `json:"connected"`     // and its broker is not known to be unavailable
	Paused        bool      `json:"paused"`        // by an operator
	QueuedItems   int       `json:"queuedItems"`   // added and not settled
	QueuedBytes   int       `json:"queuedBytes"`   // what they count against the bound
	CapacityItems int       `json:"capacityItems"` // the bounds
	CapacityBytes int       `json:"capacityBytes"`
	Unrouted      int       `json:"unrouted"`          // objects and informers without a lane yet
	InFlight      int       `json:"inFlight"`          // messages in calls of the sink
	OldestSeconds float64   `json:"oldestSeconds"`     // how long the oldest queued item has waited
	Published     uint64    `json:"published"`         // messages acknowledged
	Retries       uint64    `json:"retries"`           // lanes that a failure sent back
	DeadLetters   uint64    `json:"deadLetters"`       // messages refused, kept or not
	Blocked       string    `json:"blocked,omitempty"` // why some messages can't go until somebody acts, although the broker is there
	LastError     string    `json:"lastError,omitempty"`
	LastErrorAt   time.Time `json:"lastErrorAt,omitzero"`
	// LastErrorOver is when all that was queued at the last error had been settled.
	LastErrorOver time.Time `json:"lastErrorOver,omitzero"`
}

// counts are the numbers of Status that the metrics don't return.
type counts struct {
	published, retries, deadLetters atomic.Uint64
	inFlight                        atomic.Int64 // messages in calls of the sink
	progress                        atomic.Int64 // Unix nanoseconds of Progress
	last                            atomic.Pointer[failure]
	route                           atomic.Pointer[failure] // why the sink did not know a lane
	stalled                         stalledLanes
}

type failure struct {
	err  error
	at   time.Time
	over atomic.Int64 // Unix nanoseconds; 0 while an item that was queued before is still queued
}

// Progress returns when the sink was opened, or has last settled an item: 1970 for never. failed
// reports whether an attempt has failed since, or an operator has paused the sink.
func (p *Publisher) Progress() (at time.Time, failed bool) {
	at = time.Unix(0, p.metrics.counts.progress.Load())
	last := p.metrics.counts.last.Load()
	return at, p.breaker.Held() || last != nil && !last.at.Before(at)
}

// Status is a snapshot; it may be called at any time.
func (p *Publisher) Status() Status {
	s := Status{
		Opened:        p.isOpen(),
		CapacityItems: p.capacity.maxItems,
		CapacityBytes: p.capacity.maxBytes,
		Unrouted:      int(p.withoutLane()),
		InFlight:      int(p.metrics.counts.inFlight.Load()),
		OldestSeconds: p.age().Seconds(),
		Published:     p.metrics.counts.published.Load(),
		Retries:       p.metrics.counts.retries.Load(),
		DeadLetters:   p.metrics.counts.deadLetters.Load(),
	}
	s.Paused = p.breaker.Held()
	s.Connected = s.Opened && p.connected()
	s.QueuedItems, s.QueuedBytes = p.capacity.load()
	if last := p.metrics.counts.last.Load(); last != nil {
		s.LastError, s.LastErrorAt = last.err.Error(), last.at
	}
	switch why := p.blocked(); {
	case why == nil:
		if last := p.metrics.counts.last.Load(); last != nil && s.Connected && last.over.Load() != 0 {
			s.LastErrorOver = time.Unix(0, last.over.Load())
		}
	case sinks.Classify(why) == sinks.Reconnect:
		s.LastError, s.LastErrorAt = why.Error(), time.Now()
	default:
		s.Blocked = why.Error()
	}
	return s
}

// connected reports whether the broker of an open sink is not known to be unavailable.
func (p *Publisher) connected() bool {
	why := p.blocked()
	return p.breaker.Connected() && (why == nil || sinks.Classify(why) != sinks.Reconnect)
}

// withoutLane is how many objects and informers wait until the sink knows a lane.
func (p *Publisher) withoutLane() int64 {
	return p.unrouted.count.Load() + p.unrouted.broadcasts.Load()
}

// blocked returns why some messages can't go: the sink doesn't know their lane, or reports so.
func (p *Publisher) blocked() error {
	if why := p.metrics.counts.route.Load(); why != nil && p.withoutLane() > 0 {
		return why.err
	}
	if b, ok := p.cfg.Sink.(sinks.Blocker); ok {
		if why := b.Blocked(); why != nil {
			return why
		}
	}
	if why := p.metrics.counts.stalled.first(); why != nil {
		return &sinks.Error{Class: sinks.Retry, Err: why}
	}
	return nil
}

// Stalled returns how many items of a settler wait for a destination that has stored nothing for 10
// seconds, while the sink had an answer of each call: a topic is missing, a right, room. A sink's
// own time-out is such an answer too, of NATS for an ack and of HTTP for a response: one object
// that hangs must not hold up what is about all others. Its event may be stored. That is safe,
// since what passes it does not say that everything before is there. Of a broker that can't be
// reached, or a call without an end, nothing counts as stalled.
func (p *Publisher) Stalled(s Settler) (items int) {
	count := func(l *lane) {
		for it := l.head; it != nil; it = it.next {
			if it.Settler == s {
				items++
			}
		}
	}
	stalled := &p.metrics.counts.stalled
	p.mu.Lock()
	defer p.mu.Unlock()
	stalled.mu.Lock()
	defer stalled.mu.Unlock()
	for _, o := range p.unrouted.objects {
		if stalled.isStalledLocked(o.refused) {
			count(&o.lane)
		}
	}
	for l, in := range stalled.lanes {
		if stalled.isStalledLocked(in.refused) {
			count(l)
		}
	}
	return items
}

func (p *Publisher) isOpen() bool {
	select {
	case <-p.users.closed:
		return false
	default:
	}
	select {
	case <-p.opened:
		return true
	default:
		return false
	}
}

// progressed notes the time for Progress, and that the last failure is over.
func (p *Publisher) progressed(now time.Time) {
	p.metrics.counts.progress.Store(now.UnixNano())
	last := p.metrics.counts.last.Load()
	if last != nil && last.over.Load() == 0 && p.age() < now.Sub(last.at) {
		last.over.Store(now.UnixNano())
	}
}

// failed notes an error for Status.
func (p *Publisher) failed(err error) {
	p.metrics.counts.last.Store(&failure{err: err, at: time.Now()})
}

// routeFailed remembers why the sink doesn't know a lane.
func (p *Publisher) routeFailed(err error) {
	p.failed(err)
	p.metrics.counts.route.Store(p.metrics.counts.last.Load())
}

// published counts messages that the sink acknowledged.
func (p *Publisher) published(n int) {
	p.metrics.counts.published.Add(uint64(n))
	p.metrics.published.Add(float64(n))
}

// countRetries counts a lane that a failure sent back.
func (p *Publisher) countRetries(class sinks.Class, err error) {
	if class == sinks.Stopped {
		return
	}
	p.metrics.counts.retries.Add(1)
	p.metrics.retries[class].Inc()
	if class == sinks.Retry {
		p.failed(err)
		p.warnings.retry.Warn(p.cfg.Log, "message was not acknowledged; it is sent again", "err", err)
	}
}

// countDeadLetter counts a message that was refused.
func (p *Publisher) countDeadLetter(outcome string) {
	p.metrics.counts.deadLetters.Add(1)
	p.metrics.deadLetters[outcome].Inc()
}

// Outcomes of a refused message.
const (
	outcomeSent = "sent" // it is in the dead letters
	// there is no place for dead letters, or it has refused it for too long; it was kept elsewhere
	outcomeKept    = "kept"
	outcomeDropped = "dropped" // there is no place for dead letters, and it could not be kept
	outcomeRefused = "refused" // the place refused it; it is asked again
)

type metrics struct {
	counts      counts
	published   *metric.Counter
	readBack    *metric.Counter
	retries     map[sinks.Class]*metric.Counter
	deadLetters map[string]*metric.Counter
	oversized   map[Oversize]*metric.Counter
	rateLimited *metric.Counter
	panics      *metric.Counter
	losses      *metric.Counters
	delivery    prometheus.Histogram
	seconds     prometheus.Histogram
	messages    prometheus.Histogram
}

// newMetrics makes the metrics and, with a registerer, registers them. Every label value exists
// from the start.
func newMetrics(registerer prometheus.Registerer, p *Publisher) *metrics {
	f := metric.With(registerer)
	m := &metrics{
		published: f.Counter("bridge_publisher_published_total",
			"Messages that the sink acknowledged."),
		readBack: f.Counter("bridge_publisher_recalled_total",
			"Messages not sent again after a restart, since the sink held them already."),
		delivery: f.Histogram("bridge_publisher_delivery_seconds",
			"How long after the bridge has observed a change the sink has acknowledged its event, what "+
				"waited on disk included.",
			prometheus.ExponentialBuckets(0.001, 4, 12)), // to 70 minutes
		seconds: f.Histogram("bridge_publisher_publish_seconds",
			"How long one call of the sink took.",
			prometheus.ExponentialBuckets(0.0005, 2, 16)),
		messages: f.Histogram("bridge_publisher_batch_messages",
			"Messages in one call of the sink.",
			prometheus.ExponentialBuckets(1, 2, 11)),
		retries:     map[sinks.Class]*metric.Counter{},
		deadLetters: map[string]*metric.Counter{},
		oversized:   map[Oversize]*metric.Counter{},
		panics: f.Counter("bridge_publisher_panics_total",
			"Panics during the work on one event, or on what the broker has answered. An event that "+
				"could not be made is a dead letter with the reason panic; the log has the stack."),
		rateLimited: f.Counter("bridge_publisher_rate_limited_seconds_total",
			"How long batches that were ready have waited for the rate limit, over all "+
				"callers of the sink."),
	}
	m.losses = f.Counters("bridge_publisher_acknowledged_lost_total",
		"Times a topic's partition or a stream did not hold any more what it had acknowledged, by "+
			"the reason: recreated, purged, truncated (an unclean election, a restore).",
		"reason", sinks.Reasons...)
	retries := f.Counters("bridge_publisher_retries_total",
		"Lanes sent back by a failure, by its class.",
		"class")
	for _, class := range []sinks.Class{sinks.Retry, sinks.Reconnect} {
		m.retries[class] = retries.With(class.String())
	}
	deadLetters := f.Counters("bridge_publisher_dead_letters_total",
		"Messages that the sink refused permanently: sent to the dead letters, kept in the state "+
			"directory, dropped (neither could be done); refused counts the attempts that the "+
			"place did not take.",
		"outcome")
	for _, outcome := range []string{outcomeSent, outcomeKept, outcomeDropped, outcomeRefused} {
		m.deadLetters[outcome] = deadLetters.With(outcome)
	}
	oversized := f.Counters("bridge_publisher_oversized_total",
		"Events too large for the broker that were sent in a smaller form: trim, claim, reference. "+
			"Those without one are dead letters.",
		"form")
	for _, way := range Oversizes {
		m.oversized[way] = oversized.With(string(way))
	}
	gauges(f, p)
	return m
}

// gauges are read from the publisher when somebody asks.
func gauges(f metric.Factory, p *Publisher) {
	f.GaugeFunc("bridge_publisher_queued_items", "Items added and not settled.", func() float64 {
		items, _ := p.capacity.load()
		return float64(items)
	})
	f.GaugeFunc("bridge_publisher_queued_bytes", "Bytes added and not settled.", func() float64 {
		_, bytes := p.capacity.load()
		return float64(bytes)
	})
	f.Gauge("bridge_publisher_capacity_items", "Bound on queued "+
		"items.").Set(float64(p.capacity.maxItems))
	f.Gauge("bridge_publisher_capacity_bytes", "Bound on queued "+
		"bytes.").Set(float64(p.capacity.maxBytes))
	f.GaugeFunc("bridge_publisher_delayed_lanes",
		"Lanes that wait for the end of their retry's backoff.",
		func() float64 { return float64(p.queue.Delayed()) })
	f.GaugeFunc("bridge_publisher_unrouted_objects",
		"Objects and informers whose topic is not known yet.",
		func() float64 { return float64(p.withoutLane()) })
	f.GaugeFunc("bridge_publisher_oldest_seconds", "How long the oldest queued item has waited.",
		func() float64 { return p.age().Seconds() })
	f.FlagFunc("bridge_publisher_paused", "1 while an operator has paused the sink.", p.breaker.Held)
	f.FlagFunc("bridge_publisher_blocked",
		"1 while some messages can't go until somebody acts, although the broker is "+
			"there: a missing topic.",
		func() bool {
			why := p.blocked()
			return why != nil && sinks.Classify(why) != sinks.Reconnect
		})
	f.FlagFunc("bridge_publisher_connected",
		"1 when the sink is open and its broker is not known to be unavailable.",
		func() bool { return p.isOpen() && p.connected() })
}

// delivered notes how long what the sink has acknowledged was in flight.
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
