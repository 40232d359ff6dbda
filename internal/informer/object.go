package informer

import (
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// What a delta says of an object that exists: nothing new, that it was added or updated, or that somebody asked for it.

// decideObject makes the changes of a delta of an object.
func (c *controller) decideObject(d *deltafifo.Delta) error {
	known, found, err := c.cfg.Indexer.Get(d.Key)
	if err != nil {
		return err
	}
	alive := found && !known.Deleted
	c.telling = d.Version
	if d.Object != nil && !d.FinalStateUnknown {
		c.telling = d.Object.Version
	}
	switch d.Type {
	case deltafifo.Sync:
		return c.sync(d, known, alive)
	case deltafifo.Deleted:
		return c.deleted(d, known, found)
	case deltafifo.Unselected:
		return c.unselected(d, known, alive)
	case deltafifo.Replaced:
		c.marks = append(c.marks, d.Key)
		c.listed.Items++
		c.compare(d.Key, d.Object, known, found)
		if before := c.leftBefore(d.Key, d.Object.UID, d.Object.Version); len(before) > 0 {
			return c.succeeded(d, known, alive, before)
		}
		if c.unchanged(d.Object, known, found) {
			return c.covered(d, known, alive)
		}
	default:
		if found && covers(known, d.Object.Version) {
			c.metrics.skipped.Inc()
			return nil
		}
	}
	return c.stored(d, known, alive, found)
}

// covered passes over an item of a list that is known already, unless every object is to be published at the first list: in the state that is known,
// where the list is from an API server that is behind.
func (c *controller) covered(d *deltafifo.Delta, known store.Record, alive bool) error {
	if !c.cfg.Resnapshot || !c.relist.Initial || !alive {
		c.metrics.skipped.Inc()
		return nil
	}
	obj := d.Object
	if obj.Version != known.Version {
		var err error
		if obj, err = c.cfg.Indexer.Object(d.Key); err != nil || obj == nil || obj.Version != known.Version {
			return err
		}
	}
	ch := event.Change{
		Op: event.Synced, Key: d.Key, Object: obj, UID: known.UID, Version: known.Version, Initial: true, Round: c.started.Unix(),
	}
	c.emit(c.newChange(ch))
	return nil
}

// covers says whether what is known of an object includes the given version of it.
func covers(known store.Record, version resource.Version) bool {
	return version == known.Version || version.NotNewer(known.Version)
}

// unchanged says whether an item of a list tells nothing new. After a rewind only equality says so, and nothing when it is not known
// what was sent.
func (c *controller) unchanged(obj *resource.Object, known store.Record, found bool) bool {
	if !found {
		return false
	}
	if c.relist.Rewound {
		return !c.unsure.Load() && !known.Deleted && known.UID == obj.UID && known.Version == obj.Version
	}
	return covers(known, obj.Version)
}

// stored makes the change of an object that exists: Added, Updated, or the delete of another that had its name and then Added.
func (c *controller) stored(d *deltafifo.Delta, known store.Record, alive, found bool) error {
	listed := d.Type == deltafifo.Replaced
	if alive && known.UID != d.Object.UID {
		if err := c.gone(d.Key, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
		alive = false
	}
	ch := event.Change{Op: event.Added, Key: d.Key, Object: d.Object, UID: d.Object.UID, Version: d.Object.Version}
	if alive {
		ch.Op, ch.Before = event.Updated, known.Version
		var err error
		if ch.Old, err = c.old(d.Key, known); err != nil {
			return err
		}
	} else {
		ch.Cause = c.causeOfAdd(d)
		c.news = append(c.news, store.Announcement{Key: d.Key, Object: d.Object, Seq: c.number + 1, Unknown: !found})
	}
	ch.Initial = listed && c.relist.Initial
	ch.Inferred = listed && !c.relist.Initial && !c.relist.Partial()
	c.emit(c.newChange(ch))
	return nil
}

// old is the object that a known record is of, where a listener needs it. It is read before the change becomes the newest state, so
// it is the version before, also when a crash brings the change again: what is settled then is that version.
func (c *controller) old(key resource.Key, known store.Record) (*resource.Object, error) {
	if !c.needsOld {
		return nil, nil
	}
	old, err := c.cfg.Indexer.Object(key)
	if err != nil || old == nil || old.Version != known.Version {
		return nil, err
	}
	return old, nil
}

// sync makes a Synced of an object for the listeners that asked. A change that was decided since is newer
// than what they asked for: only a snapshot comes behind it.
func (c *controller) sync(d *deltafifo.Delta, known store.Record, alive bool) error {
	if !alive || !d.Snapshot && c.cfg.Indexer.ChangedSince(d.Key, d.After) {
		return nil
	}
	obj, err := c.cfg.Indexer.Object(d.Key)
	if err != nil || obj == nil || obj.Version != known.Version { // an earlier one must not come behind the known one
		return err
	}
	ch := c.newChange(event.Change{
		Op: event.Synced, Key: d.Key, Object: obj, UID: known.UID, Version: known.Version, Initial: d.Snapshot, Round: d.Round,
	})
	ch.audience = d.Listeners
	c.emit(ch)
	return nil
}
