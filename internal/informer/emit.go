package informer

import (
	"cmp"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
)

// emit numbers a change, makes it the newest state of its object, gives it its place in the stream
// and puts it into the batch.
func (c *controller) emit(ch *changelog.Entry) {
	c.number++
	c.informer.newest.Store(c.number)
	ch.Seq, ch.Era = c.number, event.Era{Epoch: c.epoch, Selection: c.cfg.Indexer.Selection()}
	if c.cfg.Namespaces && ch.Kind == changelog.OfObject {
		ch.Entered = c.informer.scope.of(ch.Key).Entered
	}
	if ch.For == 0 {
		ch.For = c.log.Everyone()
	}
	if ch.For &= c.log.Everyone(); ch.For == 0 {
		return // they have gone since they asked
	}
	if ch.LeavesState() {
		if ch.Op == event.Deleted && ch.Object != nil && c.cfg.OnDelete != nil {
			c.cfg.OnDelete(ch.Object)
		}
		c.overlay(ch)
	}
	c.informer.metrics.changes.WithLabelValues(string(ch.Op)).Inc()
	if c.cfg.Owners != nil && ch.Object != nil {
		ch.Owners = c.cfg.Owners(ch.Object)
	}
	if ch.Kind == changelog.OfObject && c.informer.selects {
		c.selectListeners(ch)
	}
	c.log.Place(ch)
	if ch.For == 0 {
		c.keptBack(ch)
		return
	}
	c.changes = append(c.changes, ch)
	c.bytes += ch.Size()
}

// keptBack forgets the announcement of a change that nobody wants: nobody is told of the object, so
// nobody has to be told that it is gone.
func (c *controller) keptBack(ch *changelog.Entry) {
	if n := len(c.news); n > 0 && c.news[n-1].Seq == ch.Seq {
		c.news = c.news[:n-1]
	}
}

func (c *controller) overlay(ch *changelog.Entry) {
	upTo := cmp.Or(ch.Told, ch.Version)
	if ch.OfList || c.list.Rewound || c.list.Left {
		upTo = "" // versions say nothing
	}
	c.cfg.Indexer.Meet(ch.Key, ch.UID, upTo, ch.Seq)
	c.cfg.Indexer.Update(ch.Key, ch.State())
}
