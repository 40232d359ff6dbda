package publisher

import (
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Status is what a publisher is doing at one moment.
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
}

// counts are the numbers of Status that the metrics don't give back.
type counts struct {
	published, retries, deadLetters atomic.Uint64
	inFlight                        atomic.Int64 // messages in calls of the sink
	last                            atomic.Pointer[failure]
	route                           atomic.Pointer[failure] // why the sink did not know a lane
}

type failure struct {
	err error
	at  time.Time
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

// blocked is why some messages can't go: the sink doesn't know their lane, or says so.
func (p *Publisher) blocked() error {
	if why := p.metrics.counts.route.Load(); why != nil && p.withoutLane() > 0 {
		return why.err
	}
	if b, ok := p.cfg.Sink.(sinks.Blocker); ok {
		return b.Blocked()
	}
	return nil
}

func (p *Publisher) isOpen() bool {
	select {
	case <-p.door.closed:
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

// failed notes an error for Status.
func (p *Publisher) failed(err error) { p.metrics.counts.last.Store(&failure{err, time.Now()}) }

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
