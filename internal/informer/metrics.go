package informer

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
)

type metrics struct {
	changes *prometheus.CounterVec
	skipped prometheus.Counter
	gaps    *prometheus.CounterVec
	// filtered and filterErrors are by sink, "" for the informer's own selector.
	filtered     *prometheus.CounterVec
	filterErrors *prometheus.CounterVec
	tally        tally
	collapsed    *prometheus.CounterVec // by sink, of those with Latest
}

func newMetrics(reg prometheus.Registerer, listeners []ListenerConfig) *metrics {
	f := metric.With(reg)
	m := &metrics{
		changes: f.Counters("bridge_informer_changes_total",
			"Changes decided by the controller, by op.",
			"op", string(event.Added), string(event.Updated), string(event.Deleted), string(event.Synced)),
		skipped: f.Counter("bridge_informer_covered_total",
			"Deltas that the settled state of their object covered already, so that they are no change."),
		gaps: f.Counters("bridge_informer_gaps_total",
			"Gaps told, by reason.",
			"reason", resource.ReasonExpired, resource.ReasonRewound, resource.ReasonUnreadable, reasonInterrupted,
			resource.ReasonDropped, resource.ReasonForgotten, ReasonTakeover),
		collapsed: f.Counters("bridge_informer_collapsed_total",
			"Changes that a sink with delivery latest was not sent, because a newer one of the object waited too.",
			"sink"),
		filtered: f.CountersOf("bridge_informer_filtered_total",
			"Changes that were kept back from a sink, or from all (sink empty), by reason.",
			"sink", "reason"),
		filterErrors: f.Counters("bridge_informer_filter_errors_total",
			"Changes that were sent because the filter of a sink, or of all (sink empty), failed.",
			"sink"),
	}
	m.tally.gaps = map[string]int{}
	for _, l := range listeners {
		if l.Latest {
			m.collapsed.WithLabelValues(l.Name)
		}
	}
	return m
}

// told counts a gap that the controller could not count, since only the listener knew of it.
func (m *metrics) told(e *changelog.Entry) {
	switch {
	case e.Kind == changelog.OfDropped:
		m.gap(resource.ReasonDropped)
	case e.Unasked:
		m.gap(e.Relist.Reason)
	}
}

// gap counts one.
func (m *metrics) gap(reason string) {
	m.gaps.WithLabelValues(reason).Inc()
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	m.tally.gaps[reason]++
}

// tally is what status shows, since counters can't be read back.
type tally struct {
	mu   sync.Mutex // guards gaps
	gaps map[string]int
}

func (m *metrics) gapsTold() map[string]int {
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	return maps.Clone(m.tally.gaps)
}

// registerOldest shows how old the oldest change is that a sink has not acknowledged.
func (i *Informer) registerOldest(reg prometheus.Registerer) {
	for _, l := range i.listeners {
		metric.WithLabel(reg, "sink", l.cfg.Name).GaugeFunc("bridge_informer_oldest_seconds",
			"How long ago the oldest change was observed that the sink has not acknowledged; 0 when there is none.",
			func() float64 { return age(l.oldest()).Seconds() })
	}
}

// age is how long ago something was; 0 for never.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}
