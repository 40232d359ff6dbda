package informer

import (
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// What is made of an object that is gone.

// deleted makes the change of an object that is gone, as the watch or a list tells.
func (c *controller) deleted(d *deltafifo.Delta, known store.Record, found bool) error {
	alive := found && !known.Deleted
	if d.FinalStateUnknown {
		cause := c.causeOfMissing(d.Key)
		if alive {
			if err := c.gone(d.Key, known, d.Version, cause); err != nil {
				return err
			}
		}
		return c.goneUnsettled(d.Key, c.leftBefore(d.Key, "", d.Version), d.Version, cause)
	}
	if d.Listed {
		c.compare(d.Key, d.Object, known, alive)
	}
	if found && coversDelete(known, d.Object) {
		c.metrics.skipped.Inc()
		return nil
	}
	ch := event.Change{Op: event.Deleted, Key: d.Key, Object: d.Object, UID: d.Object.UID, Version: d.Object.Version, Cause: c.causeOfDelete()}
	if alive && known.UID == d.Object.UID {
		ch.Before = known.Version
	} else if alive {
		if err := c.gone(d.Key, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
	}
	c.emit(c.newChange(ch))
	return nil
}

// coversDelete says whether what is known of an object includes that it was deleted. An aggregated API server may give the delete the version of the
// last state: so only a later state of the same object says that it lived on.
func coversDelete(known store.Record, last *resource.Object) bool {
	if !known.Deleted && known.UID == last.UID {
		return known.Version.Newer(last.Version)
	}
	return covers(known, last.Version)
}

// gone makes the inferred delete of a known object, with its last state on disk, which may be an earlier one than the last that was sent
// (store.Options.BodiesPerSecond). The tombstone bears the version as of which it is gone; the event that of the last state that was sent;
// the state its own.
func (c *controller) gone(key resource.Key, known store.Record, asOf resource.Version, cause string) error {
	last, err := c.cfg.Indexer.Object(key)
	if err != nil {
		return err
	}
	c.emitGone(key, known, last, asOf, cause)
	return nil
}

func (c *controller) emitGone(key resource.Key, known store.Record, last *resource.Object, asOf resource.Version, cause string) {
	ch := c.newChange(event.Change{
		Op: event.Deleted, Key: key, Object: last, UID: known.UID, Version: known.Version, Before: known.Version, Inferred: true,
		Cause: cause, Diverged: c.relist.Rewound,
	})
	ch.goneAsOf = asOf
	if cause == event.CauseLeft || c.relist.Left {
		ch.left = c.hasLeft(key)
	}
	if cause == event.CauseLeft {
		ch.Inferred = !c.relist.Partial()
	}
	c.emit(ch)
}
