package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
)

type metrics struct {
	changes *metric.Counters
	skipped *metric.Counter
	// filtered and filterErrors are by sink, "" for the informer's own selector.
	filtered     *prometheus.CounterVec
	filterErrors *metric.Counters
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	return &metrics{
		changes: f.Counters("bridge_informer_changes_total",
			"Changes decided by the controller, by op.",
			"op", string(event.Added), string(event.Updated), string(event.Deleted), string(event.Synced)),
		skipped: f.Counter("bridge_informer_covered_total",
			"Deltas that the settled state of their object covered already, so that they are no change."),
		filtered: f.CountersOf("bridge_informer_filtered_total",
			"Changes that were kept back from a sink, or from all (sink empty), by reason.",
			"sink", "reason"),
		filterErrors: f.Counters("bridge_informer_filter_errors_total",
			"Changes that were sent because the filter of a sink, or of all (sink empty), failed.",
			"sink"),
	}
}

// NewGaps makes the counters of gaps, by reason. Some gaps only a listener knows of.
func NewGaps(reg prometheus.Registerer) *metric.Counters {
	return metric.With(reg).Counters("bridge_informer_gaps_total",
		"Gaps reported, by reason.",
		"reason", resource.ReasonExpired, resource.ReasonRewound, resource.ReasonUnreadable,
		reasonInterrupted,
		resource.ReasonDropped, resource.ReasonForgotten, reasonTakeover)
}
