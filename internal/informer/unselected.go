package informer

import (
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// unselected makes the delete of an object that is known, and is not selected any more: it has left, unless it is gone, or another has its name.
// Of an object that is not known nobody was told, and nobody is told.
func (c *controller) unselected(d *deltafifo.Delta, known store.Record, alive bool) error {
	if d.Listed {
		c.compare(d.Key, d.Object, known, alive)
	}
	if alive && c.outdated(d, known) {
		if d.Listed && !d.Gone {
			c.marks = append(c.marks, d.Key) // it exists
		}
		c.metrics.skipped.Inc()
		return nil
	}
	if alive {
		last, err := c.cfg.Indexer.Object(d.Key)
		if err != nil {
			return err
		}
		c.leaves(d, known, last)
	}
	for _, rec := range c.leftBefore(d.Key, "", d.Object.Version) {
		last, err := c.cfg.Indexer.LeftObject(d.Key, rec.UID)
		if err != nil {
			return err
		}
		c.leaves(d, rec, last)
	}
	return nil
}

// outdated says whether what is known is newer than the news that an object is not selected. In a list that may be the same version: what is
// selected has changed.
func (c *controller) outdated(d *deltafifo.Delta, known store.Record) bool {
	if !d.Listed {
		return covers(known, d.Object.Version)
	}
	return !c.relist.Rewound && known.Version.Newer(d.Object.Version)
}

// leaves makes the delete of an object that was selected, with its last selected state, as the API server does where it selects. The event has the
// version with which the object left, if it is still the one.
func (c *controller) leaves(d *deltafifo.Delta, was store.Record, last *resource.Object) {
	if was.UID != d.Object.UID {
		c.emitGone(d.Key, was, last, d.Object.Version, event.CauseDeleted)
		return
	}
	ch := event.Change{
		Op: event.Deleted, Key: d.Key, Object: last, UID: was.UID, Version: d.Object.Version, Before: was.Version,
		Inferred: d.Listed && !d.Gone && !c.relist.Partial(), Cause: event.CauseLeft, Left: d.Object.Version,
	}
	if d.Gone {
		ch.Cause, ch.Left = event.CauseDeleted, ""
	}
	c.emit(c.newChange(ch))
}

// causeOfAdd is what can be told about an object that was not known. Where the API server selects, it tells of one that comes in as of a new one.
func (c *controller) causeOfAdd(d *deltafifo.Delta) string {
	switch {
	case !c.cfg.Selective || c.cfg.Leavable:
		return ""
	case d.Type == deltafifo.Added:
		return event.CauseCreated
	case d.Type == deltafifo.Replaced && c.relist.Partial():
		return event.CauseEntered
	case d.Type == deltafifo.Updated && c.cfg.Enterable:
		return event.CauseEntered
	}
	return ""
}
