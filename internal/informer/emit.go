package informer

import (
	"cmp"
	"math/bits"

	"github.com/kubebridge/bridge/internal/event"
)

// emit numbers a change, makes it the newest state of its object, holds its place in the stream and puts it into the batch.
func (c *controller) emit(ch *change) {
	c.number++
	c.newest.Store(c.number)
	ch.number, ch.Era = c.number, event.Era{Epoch: c.epoch, Selection: c.cfg.Indexer.Selection()}
	if c.cfg.Namespaces && ch.Kind == ofObject {
		ch.Entered = c.scope.of(ch.Key).Entered
	}
	if ch.audience == 0 {
		ch.audience = c.everyone
	}
	if ch.audience &= c.everyone; ch.audience == 0 {
		return // they have gone since they asked
	}
	if ch.leavesState() {
		if ch.Op == event.Deleted && ch.Object != nil && c.cfg.OnDelete != nil {
			c.cfg.OnDelete(ch.Object)
		}
		c.overlay(ch)
	}
	c.metrics.changes.WithLabelValues(string(ch.Op)).Inc()
	if c.cfg.Owners != nil && ch.Object != nil {
		ch.Owners = c.cfg.Owners(ch.Object)
	}
	ch.place = c.cfg.Tracker.Append(ch.stateKey())
	if ch.Kind == ofObject && c.selects {
		if c.selectListeners(ch); ch.audience == 0 {
			c.keptBack(ch)
			return
		}
	}
	listeners := ch.audience
	ch.waiting.Store(int32(bits.OnesCount64(listeners)))
	c.changes = append(c.changes, ch)
	c.bytes += ch.size
}

func (c *controller) overlay(ch *change) {
	s := ch.settled()
	upTo := cmp.Or(ch.Told, ch.Version)
	if ch.OfList || c.list.Rewound || c.list.Left {
		upTo = "" // versions say nothing
	}
	c.cfg.Indexer.Meet(ch.Key, s.UID, upTo, ch.number)
	c.cfg.Indexer.Update(ch.Key, s)
}
