package reflector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/resource"
)

type metrics struct {
	lists, listItems, watches, bookmarks prometheus.Counter
	frameBytes                           prometheus.Counter
	added, modified, deleted, passed     prometheus.Counter
	entered, left                        prometheus.Counter
	errors, relists, quarantined         *prometheus.CounterVec
	lastSeen                             prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "bridge_reflector_" + name, Help: help})
	}
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bridge_reflector_" + name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value) // starts at zero, so that a rate exists before the first failure
		}
		return v
	}
	events := vec("events_total", "Watch events handed on, by type.", "type", "added", "modified", "deleted")
	namespaces := vec("namespaces_total", "Namespaces that came into the selection or left it while others were watched, by change.", "change", "entered", "left")
	m := &metrics{
		passed:      counter("passed_total", "Watch events about objects that are not wanted: of other namespaces, of another shard, or not selected here by their labels; the last also in lists."),
		entered:     namespaces.WithLabelValues("entered"),
		left:        namespaces.WithLabelValues("left"),
		lists:       counter("lists_total", "Lists begun: a paged list or a WatchList counts once per attempt; probes are not counted."),
		listItems:   counter("list_items_total", "Objects read from lists."),
		watches:     counter("watches_total", "Watches that the API server accepted, WatchLists included."),
		bookmarks:   counter("bookmarks_total", "Bookmarks handed on."),
		frameBytes:  counter("frame_bytes_total", "Bytes of watch frames read, after decompression."),
		quarantined: vec("quarantined_total", "Frames and list items that could not be understood, by reason.", "reason", unreadableReasons...),
		added:       events.WithLabelValues("added"),
		modified:    events.WithLabelValues("modified"),
		deleted:     events.WithLabelValues("deleted"),
		errors:      vec("errors_total", "Requests and streams that failed, by reason.", "reason", reasons...),
		relists: vec("relists_total", "Times that everything known had to be replaced by a list, by reason.", "reason",
			relistInitial, resource.ReasonExpired, resource.ReasonRewound, resource.ReasonUnreadable),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_reflector_last_seen_timestamp_seconds",
			Help: "When the API server last sent an event, a bookmark or an item of a list.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.lists, m.listItems, m.watches, m.bookmarks, m.frameBytes, m.quarantined, events, m.errors, m.relists, m.lastSeen, m.passed, namespaces)
	}
	return m
}

// registerQuiet shows how long nothing came.
func registerQuiet(reg prometheus.Registerer, s *status) {
	if reg == nil {
		return
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "bridge_reflector_quiet_seconds",
		Help: "How long the API server has sent neither event, bookmark nor item of a list; 0 before the first.",
	}, func() float64 {
		last := s.get().LastSeen
		if last.IsZero() {
			return 0
		}
		return time.Since(last).Seconds()
	}))
}

// relistInitial is the label of a first snapshot, which is no gap and has no reason.
const relistInitial = "initial"
