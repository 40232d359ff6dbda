package reflector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
)

type metrics struct {
	lists, listItems, watches, bookmarks *metric.Counter
	frameBytes                           *metric.Counter
	added, modified, deleted, passed     *metric.Counter
	entered, left                        *metric.Counter
	errors, relists, quarantined         *metric.Counters
	lastSeen                             *metric.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	events := f.Counters("bridge_reflector_events_total",
		"Watch events handed on, by type.",
		"type", "added", "modified", "deleted")
	namespaces := f.Counters("bridge_reflector_namespaces_total",
		"Namespaces that came into the selection or left it while others were watched, by change.",
		"change", "entered", "left")
	return &metrics{
		passed: f.Counter("bridge_reflector_passed_total",
			"Watch events about objects that are not wanted: of other namespaces, of another "+
				"shard, or not selected here by their labels; the last also in lists."),
		entered: namespaces.With("entered"),
		left:    namespaces.With("left"),
		lists: f.Counter("bridge_reflector_lists_total",
			"Lists begun: a paged list or a WatchList counts once per attempt; probes are not "+
				"counted."),
		listItems: f.Counter("bridge_reflector_list_items_total", "Objects read from lists."),
		watches: f.Counter("bridge_reflector_watches_total",
			"Watches that the API server accepted, WatchLists included."),
		bookmarks: f.Counter("bridge_reflector_bookmarks_total", "Bookmarks handed on."),
		frameBytes: f.Counter("bridge_reflector_frame_bytes_total",
			"Bytes of watch frames read, after decompression."),
		quarantined: f.Counters("bridge_reflector_quarantined_total",
			"Frames and list items that could not be understood, by reason.",
			"reason", unreadableReasons...),
		added:    events.With("added"),
		modified: events.With("modified"),
		deleted:  events.With("deleted"),
		errors: f.Counters("bridge_reflector_errors_total",
			"Requests and streams that failed, by reason.",
			"reason", reasons...),
		relists: f.Counters("bridge_reflector_relists_total",
			"Times that everything known had to be replaced by a list, by reason.",
			"reason", relistInitial, resource.ReasonExpired, resource.ReasonRewound,
			resource.ReasonUnreadable),
		lastSeen: f.Gauge("bridge_reflector_last_seen_timestamp_seconds",
			"When the API server last sent an event, a bookmark or an item of a list."),
	}
}

// registerQuiet shows for how long nothing came.
func registerQuiet(reg prometheus.Registerer, s *status) {
	metric.With(reg).GaugeFunc("bridge_reflector_quiet_seconds",
		"How long the API server has sent neither event, bookmark nor item of a list; 0 before "+
			"the first.",
		func() float64 {
			last := s.get().LastSeen
			if last.IsZero() {
				return 0
			}
			return time.Since(last).Seconds()
		})
}

// registerPaused shows whether an operator has paused the reflector.
func registerPaused(reg prometheus.Registerer, g *gate) {
	metric.With(reg).FlagFunc("bridge_reflector_paused", "1 while an operator has paused the "+
		"informer.",
		func() bool {
			closed, _ := g.state()
			return closed
		})
}

// relistInitial is the label of a first snapshot, which is no gap and has no reason.
const relistInitial = "initial"
