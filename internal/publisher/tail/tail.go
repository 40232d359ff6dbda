package tail

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
)

// MaxWatchers is how many may look at once.
const MaxWatchers = 8

// ErrTooMany is returned by Watch when MaxWatchers look already.
var ErrTooMany = errors.New("too many are looking at the events already; close another page")

// Hub shows what publishers settle to its Watchers. Its methods may be called concurrently.
type Hub struct {
	// watchers is replaced and never changed; nil when nobody looks.
	watchers atomic.Pointer[[]*Watcher]
	mu       sync.Mutex // guards replacing watchers
	dropped  *metric.Counter
}

// New makes a Hub that nobody looks at. The registerer may be nil.
func New(registerer prometheus.Registerer) *Hub {
	m := metric.With(registerer)
	h := &Hub{dropped: m.Counter("bridge_tail_dropped_total",
		"Events that were not shown to somebody who looks at the live tail, since the buffer was "+
			"full. The sinks have them.")}
	m.GaugeFunc("bridge_tail_watchers", "Who looks at the live tail of events.",
		func() float64 { return float64(len(h.looking())) })
	return h
}

func (h *Hub) looking() []*Watcher {
	if all := h.watchers.Load(); all != nil {
		return *all
	}
	return nil
}

// Settled shows items of a sink to those who look. It never waits; it keeps nothing of the items.
func (h *Hub) Settled(sink string, items []*publisher.Item) {
	for _, w := range h.looking() {
		w.settled(sink, items)
	}
}

// Watch begins to look. Close ends it.
func (h *Hub) Watch(o Options) (*Watcher, error) {
	filter, err := ParseFilter(o.Filter)
	if err != nil {
		return nil, err
	}
	w := &Watcher{hub: h, filter: filter, payload: o.Payload, ready: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.looking()
	if len(now) >= MaxWatchers {
		return nil, ErrTooMany
	}
	h.watchers.Store(new(append(slices.Clip(slices.Clone(now)), w)))
	return w, nil
}

func (h *Hub) leave(w *Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.looking()),
		func(other *Watcher) bool { return other == w })
	if len(left) == 0 {
		h.watchers.Store(nil)
		return
	}
	h.watchers.Store(&left)
}

// Bounds of the queue of one Watcher.
const (
	maxEvents = 1024
	maxBytes  = 4 << 20
)

// Options of a Watcher.
type Options struct {
	// Filter is what to show; see ParseFilter.
	Filter string
	// Payload shows the payload too, as far as MaxPayload.
	Payload bool
}

// Watcher is somebody who looks. Next and Close are for one goroutine.
type Watcher struct {
	hub     *Hub
	filter  Filter
	payload bool
	ready   chan struct{} // a token: there is something for Next

	mu      sync.Mutex // guards all below; held while events are copied
	events  []Event
	bytes   int
	dropped int
}

// Batch is what happened since the last one.
type Batch struct {
	// Events in the order in which each sink settled them.
	Events []Event `json:"events"`
	// Dropped are the events that the filter lets through and the buffer had no room for, before
	// those of Events or between them.
	Dropped int `json:"dropped"`
}

// Next waits for something to show, until ctx ends.
func (w *Watcher) Next(ctx context.Context) (Batch, error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		return Batch{}, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := Batch{Events: w.events, Dropped: w.dropped}
	w.events, w.bytes, w.dropped = nil, 0, 0
	return b, nil
}

// Close ends the looking.
func (w *Watcher) Close() { w.hub.leave(w) }

// settled copies what is to be shown.
func (w *Watcher) settled(sink string, items []*publisher.Item) {
	var shown []*publisher.Item
	for _, it := range items {
		if w.filter.match(sink, it) {
			shown = append(shown, it)
		}
	}
	if len(shown) == 0 {
		return
	}
	dropped := 0
	w.mu.Lock()
	for _, it := range shown {
		if e := w.copyOf(sink, it); len(w.events) < maxEvents && w.bytes+e.size() <= maxBytes {
			w.events = append(w.events, e)
			w.bytes += e.size()
		} else {
			dropped++
		}
	}
	w.dropped += dropped
	w.mu.Unlock()
	w.hub.dropped.Add(float64(dropped))
	select {
	case w.ready <- struct{}{}:
	default:
	}
}
