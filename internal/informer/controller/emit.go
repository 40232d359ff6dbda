package controller

import (
	"cmp"
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// newChange makes an entry of the delta that is being decided.
func (c *Controller) newChange(ch event.Change) *changelog.Entry {
	ch.Observed = c.now
	return &changelog.Entry{Change: ch}
}

// emit numbers a change, makes it the newest state of its object, and puts it into the batch. rank
// follows for the whole delta.
func (c *Controller) emit(ch *changelog.Entry) {
	ch.Seq = c.number.Add(1)
	ch.IDSuffix = event.IDSuffix{Epoch: c.epoch, Selection: c.env.Indexer.Meta().Selection()}
	if c.cfg.Namespaces && ch.Kind == changelog.OfObject {
		ch.Entered = c.scope.stateOf(ch.Key).Entered
	}
	if ch.For == 0 {
		ch.For = c.env.Log.ListenersOf(nil)
	}
	if ch.For &= c.env.Log.ListenersOf(nil); ch.For == 0 {
		return // they have gone since they asked
	}
	if ch.LeavesState() {
		if ch.Op == event.Deleted && ch.Object != nil && c.cfg.OnDelete != nil {
			c.cfg.OnDelete(ch.Object)
		}
		c.overlay(ch)
	}
	c.metrics.changes.With(string(ch.Op)).Inc()
	if c.cfg.Owners != nil && ch.Object != nil {
		ch.Owners = c.cfg.Owners(ch.Object)
	}
	if ch.Kind == changelog.OfObject && c.selectors.any {
		c.selectListeners(ch)
	}
	c.batch.decided = append(c.batch.decided, ch)
	if ch.For == 0 {
		c.keptBack(ch)
		return
	}
	c.batch.changes = append(c.batch.changes, ch)
	c.batch.bytes += ch.Size()
}

// keptBack forgets the announcement of a change that no listener wants: no event of the object is
// sent, so no deleted event has to follow.
func (c *Controller) keptBack(ch *changelog.Entry) {
	if n := len(c.batch.news); n > 0 && c.batch.news[n-1].Seq == ch.Seq {
		c.batch.news = c.batch.news[:n-1]
	}
}

// rank gives the entries decided since the last call their ranks in the log, and puts a mark behind
// them.
func (c *Controller) rank(m changelog.Mark) {
	if len(c.batch.decided) == 0 && m.Kind == changelog.NoMark {
		return
	}
	c.env.Log.Rank(c.batch.decided, m)
	clear(c.batch.decided)
	c.batch.decided = c.batch.decided[:0]
}

func (c *Controller) overlay(ch *changelog.Entry) {
	upTo := cmp.Or(ch.DeltaVersion, ch.Version)
	if ch.OfList || c.list.Rewound() || c.list.Leaves() {
		upTo = "" // versions say nothing
	}
	c.env.Indexer.Announcements().Meet(ch.Key, ch.UID, upTo, ch.Seq)
	c.env.Indexer.Update(ch.Key, ch.State())
}

// quarantined reports data of the API server that can't be understood. Until that is settled the
// watermark stays before it, so that after a crash it comes, and is reported, again.
func (c *Controller) quarantined(d *deltafifo.Delta) error {
	if err := c.markUnread(d.Unreadable.Key); err != nil {
		return err
	}
	ch := c.newChange(event.Change{Op: event.Quarantined, Key: d.Unreadable.Key})
	ch.Kind, ch.Unreadable = changelog.OfQuarantined, d.Unreadable
	c.emit(ch)
	return nil
}

// complainEvery bounds how often the log reports that a selector fails; the metrics count each
// time.
const complainEvery = time.Minute

// selectorStats calls one selector and counts its failures. The controller owns it.
type selectorStats struct {
	selector Selector
	sink     string // "" for that of the informer
	logged   time.Time
}

// selectors are those of the informer and its listeners.
type selectors struct {
	own       selectorStats
	listeners []listener // in their order
	any       bool       // there is a selector
	needsOld  bool       // a selector or a listener needs the object before an update
	omits     unreportedOmits
}

// listener is what the controller remembers of a listener.
type listener struct {
	Listener
	bit       changelog.Listeners
	selection selectorStats
	progress  struct { // reported last
		version resource.Version
		at      time.Time
	}
}

func newSelectors(cfg *Config, env *Env) selectors {
	s := selectors{own: selectorStats{selector: cfg.Selector}}
	s.use(cfg.Selector)
	for n, l := range env.Listeners {
		s.listeners = append(s.listeners, listener{
			Listener: l, bit: 1 << n, selection: selectorStats{selector: l.Selector, sink: l.Name},
		})
		s.needsOld = s.needsOld || l.NeedsOld
		s.use(l.Selector)
	}
	return s
}

// use prepares for a selector, which may be nil.
func (s *selectors) use(selector Selector) {
	if selector != nil {
		s.any = true
		s.needsOld = s.needsOld || selector.NeedsOld()
	}
}

// selectListeners removes the listeners that do not want a change from its set.
func (c *Controller) selectListeners(ch *changelog.Entry) {
	if c.selectors.own.selector != nil && c.rejects(&c.selectors.own, ch) {
		ch.For = 0
		return
	}
	for n := range c.selectors.listeners {
		l := &c.selectors.listeners[n]
		if l.selection.selector != nil && ch.For&l.bit != 0 && c.rejects(&l.selection, ch) {
			ch.For &^= l.bit
		}
	}
}

func (c *Controller) rejects(s *selectorStats, ch *changelog.Entry) bool {
	reason, err := s.ask(&ch.Change)
	if err != nil {
		c.metrics.filterErrors.With(s.sink).Inc()
		if c.now.Sub(s.logged) >= complainEvery {
			s.logged = c.now
			c.env.Logger.Warn("a filter failed, so its event is sent; further failures are counted",
				"key", ch.Key, "version", ch.Version, "sink", s.sink, "err", err)
		}
	}
	if reason != "" {
		c.metrics.filtered.WithLabelValues(s.sink, reason).Inc()
	}
	return reason != ""
}

// ask calls the selector. A panic is an error: it must not come back at each restart.
func (s *selectorStats) ask(c *event.Change) (reason string, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			reason, err = "", event.NewPanicError(recovered)
		}
	}()
	return s.selector.Rejects(c)
}
