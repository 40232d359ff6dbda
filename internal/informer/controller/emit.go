package controller

import (
	"cmp"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
)

// newChange makes an entry of the delta that is being decided.
func (c *Controller) newChange(ch event.Change) *changelog.Entry {
	ch.Observed = c.now
	return &changelog.Entry{Change: ch}
}

// emit numbers a change, makes it the newest state of its object, and puts it into the batch. The
// log learns of it with the rest of its delta, in place.
func (c *Controller) emit(ch *changelog.Entry) {
	ch.Seq = c.number.Add(1)
	ch.Era = event.Era{Epoch: c.epoch, Selection: c.env.Indexer.Meta().Selection()}
	if c.cfg.Namespaces && ch.Kind == changelog.OfObject {
		ch.Entered = c.scope.of(ch.Key).Entered
	}
	if ch.For == 0 {
		ch.For = c.env.Log.Set(nil)
	}
	if ch.For &= c.env.Log.Set(nil); ch.For == 0 {
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

// keptBack forgets the announcement of a change that nobody wants: no event of the object is sent,
// so no deleted event has to follow.
func (c *Controller) keptBack(ch *changelog.Entry) {
	if n := len(c.batch.news); n > 0 && c.batch.news[n-1].Seq == ch.Seq {
		c.batch.news = c.batch.news[:n-1]
	}
}

// place gives what was decided since the last call its place in the log, and puts a mark behind it.
func (c *Controller) place(m changelog.Mark) {
	if len(c.batch.decided) == 0 && m.Kind == changelog.NoMark {
		return
	}
	c.env.Log.Place(c.batch.decided, m)
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
