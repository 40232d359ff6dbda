package changelog

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
)

// A full log on disk that is to drop its oldest (DropOldest) loses whole batches from its front.
// First nobody can read them any more; then each cursor gets what it needed of them; the next
// commit writes the cursors and trims. Until that is durable nobody reads there, so no loss is
// reported that a crash would undo.
//
// Gaps stay with the cursors, the last of each reason: no number of events shows that the server's
// history went back, or that a list follows.

// dropProgress keeps readers away from a running drop of the oldest.
type dropProgress struct {
	before Position // while one is under way, nobody reads before this position; else 0
	count  int      // of those that have begun
	// done is before of the last that the cursors know of: the log ends there for them.
	done Position
}

// dropOldest makes room on disk. If its commit fails, a later commit makes the room. The caller
// holds l.spooling.
func (l *Log) dropOldest() error {
	// What was staged has to be there, and what all have acked gone, before anything is counted as
	// lost. A drop whose commit has failed ends by this.
	if err := l.cfg.Committer.Commit(); err != nil {
		return err
	}
	before, ok := l.beginDrop()
	if !ok {
		return nil
	}
	if err := l.lose(before); err != nil {
		l.endDrop()
		return err
	}
	return l.cfg.Committer.Commit()
}

// beginDrop finds what has to go. From here on nobody can read the entries that will be counted,
// and they have left memory.
func (l *Log) beginDrop() (before Position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok = l.disk.oldest(); !ok {
		return 0, false
	}
	m := &l.memory
	m.leaveFront(func(e *Entry) bool { return e.Position < before })
	m.base = max(m.base, before)
	l.drop.before = before
	l.drop.count++
	l.changedLocked()
	return before, true
}

// lose gives each cursor what it loses when everything before a position is dropped.
func (l *Log) lose(before Position) error {
	states := l.cursorStates()
	for n := range states {
		states[n].dropped.below, states[n].dropped.at = before, time.Now()
	}
	for e, err := range l.cfg.Indexer.Log().Entries(0, uint64(before)) {
		if err != nil {
			return err
		}
		r, _, err := decodeHeader(Position(e.Position), e.Data)
		if err != nil {
			return err
		}
		r.Position = Position(e.Position)
		set := l.ListenersOf(r.For)
		for n, c := range l.cursors {
			if set&c.bit != 0 {
				states[n].lose(&r.Entry)
			}
		}
	}
	for n, c := range l.cursors {
		events := states[n].reportCounted()
		c.lose(&states[n])
		l.report(c, &states[n], events)
	}
	l.mu.Lock()
	l.drop.done = before
	l.mu.Unlock()
	return nil
}

func (l *Log) cursorStates() (states []cursorState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.cursors {
		states = append(states, c.stateLocked())
	}
	return states
}

// lose takes over the losses that were counted since s. Entries that were not read are still
// unread; some of the others may be acked.
func (c *Cursor) lose(s *cursorState) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.dropped = s.dropped
	c.dropped.kept = slices.Clone(s.dropped.kept)
	c.dropped.settle(c.next, &c.pending)
}

// endDrop lets all listeners read on.
func (l *Log) endDrop() {
	l.mu.Lock()
	l.drop.before = 0
	l.cond.Broadcast()
	l.mu.Unlock()
	l.Offer()
}

// droppedLocked reports whether a drop is under way that has become durable.
func (l *Log) droppedLocked() bool {
	d := &l.drop
	return d.before > 0 && d.done >= d.before && l.disk.first >= d.before
}

// report logs and counts what a cursor has lost; its sink gets an event.
func (l *Log) report(c *Cursor, s *cursorState, events int) {
	if events == 0 {
		return
	}
	l.mu.Lock()
	c.droppedCount += events
	l.mu.Unlock()
	l.metrics.dropped.WithLabelValues(c.name, droppedSpoolFull).Add(float64(events))
	var unreported event.LossReport
	for _, e := range s.dropped.kept {
		unreported = unreported.And(e.Loss)
	}
	l.cfg.Log.Error("the log on disk is full: dropped the oldest that the sink has not had; its "+
		"stream will report it", "sink", c.name, "events", events, "unreported", unreported.Events,
		"from", unreported.From, "to", unreported.To)
}

type metrics struct {
	bytes, entries, diskBytes *metric.Gauge
	dropped                   *prometheus.CounterVec
}

// droppedSpoolFull is the one reason for which a change is dropped.
const droppedSpoolFull = "spool-full"

func newMetrics(cfg *Config) *metrics {
	f := metric.With(cfg.Registerer)
	m := &metrics{
		bytes: f.Gauge("bridge_informer_log_bytes",
			"Bytes of changes in the log that are not settled by all listeners."),
		entries: f.Gauge("bridge_informer_log_changes",
			"Changes in the log that are not settled by all listeners."),
		diskBytes: f.Gauge("bridge_informer_spool_bytes",
			"Bytes of changes that wait for sinks in the log on disk."),
		dropped: f.CountersOf("bridge_informer_dropped_total",
			"Events dropped before a sink had them, by sink and reason.",
			"sink", "reason"),
	}
	f.Gauge("bridge_informer_log_capacity_bytes",
		"Bytes that the log may hold before the controller waits.",
	).Set(float64(cfg.MemoryBytes))
	f.Gauge("bridge_informer_spool_capacity_bytes",
		"Bytes of changes that may wait on disk, before reading stops or the oldest are dropped; "+
			"0 where nothing goes to disk.",
	).Set(float64(max(0, cfg.SpoolBytes)))
	for _, sink := range cfg.Listeners {
		m.dropped.WithLabelValues(sink, droppedSpoolFull)
	}
	return m
}
