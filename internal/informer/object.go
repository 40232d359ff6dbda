package informer

import (
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// What a delta says of an object that exists: nothing new, that it was added or updated, or that somebody asked for it.

// decideObject makes the changes of a delta of an object.
func (c *controller) decideObject(key resource.Key, d *deltafifo.Delta) error {
	known, found, err := c.cfg.Indexer.Get(key)
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
		return c.sync(key, d, known, alive)
	case deltafifo.Deleted:
		return c.deleted(key, d, known, found)
	case deltafifo.Unselected:
		return c.unselected(key, d, known, alive)
	case deltafifo.Replaced:
		c.marks = append(c.marks, key)
		c.listed.Items++
		c.compare(key, d.Object, known, found)
		if before := c.leftBefore(key, d.Object.UID, d.Object.Version); len(before) > 0 {
			return c.succeeded(key, d, known, alive, before)
		}
		if c.unchanged(d.Object, known, found) {
			return c.covered(key, d, known, alive)
		}
	default:
		if found && covers(known, d.Object.Version) {
			c.metrics.skipped.Inc()
			return nil
		}
	}
	return c.stored(key, d, known, alive, found)
}

// covered passes over an item of a list that is known already, unless every object is to be published at the first list: in the state that is known,
// where the list is from an API server that is behind.
func (c *controller) covered(key resource.Key, d *deltafifo.Delta, known store.Record, alive bool) error {
	if !c.cfg.Resnapshot || !c.relist.Initial || !alive {
		c.metrics.skipped.Inc()
		return nil
	}
	obj := d.Object
	if obj.Version != known.Version {
		var err error
		if obj, err = c.cfg.Indexer.Object(key); err != nil || obj == nil || obj.Version != known.Version {
			return err
		}
	}
	ch := event.Change{
		Op: event.Synced, Key: key, Object: obj, UID: known.UID, Version: known.Version, Initial: true, Round: c.started.Unix(),
	}
	c.emit(newChange(ch, d.Seq, c.now))
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
func (c *controller) stored(key resource.Key, d *deltafifo.Delta, known store.Record, alive, found bool) error {
	listed := d.Type == deltafifo.Replaced
	if alive && known.UID != d.Object.UID {
		if err := c.gone(key, d.Seq, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
		alive = false
	}
	ch := event.Change{Op: event.Added, Key: key, Object: d.Object, UID: d.Object.UID, Version: d.Object.Version}
	if alive {
		ch.Op, ch.Before = event.Updated, known.Version
		var err error
		if ch.Old, err = c.old(key, known); err != nil {
			return err
		}
	} else {
		ch.Cause = c.causeOfAdd(d)
		c.news = append(c.news, store.Announcement{Key: key, Object: d.Object, Seq: c.number + 1, Unknown: !found})
	}
	ch.Initial = listed && c.relist.Initial
	ch.Inferred = listed && !c.relist.Initial && !c.relist.Partial()
	c.emit(newChange(ch, d.Seq, c.now))
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

// sync makes a Synced of an object for the listeners that asked; several where their rounds differ, since an id bears the round.
func (c *controller) sync(key resource.Key, d *deltafifo.Delta, known store.Record, alive bool) error {
	if !alive {
		return nil
	}
	obj, err := c.cfg.Indexer.Object(key)
	if err != nil || obj == nil || obj.Version != known.Version { // an earlier one must not come behind the known one
		return err
	}
	if d.Round != 0 {
		ch := newChange(event.Change{
			Op: event.Synced, Key: key, Object: obj, UID: known.UID, Version: known.Version, Initial: true, Round: d.Round,
		}, d.Seq, c.now)
		ch.audience = d.Resync
		c.emit(ch)
		return nil
	}
	for asked := d.Resync & c.everyone; asked != 0; {
		round, same := c.sameRound(asked)
		ch := newChange(event.Change{Op: event.Synced, Key: key, Object: obj, UID: known.UID, Version: known.Version, Round: round}, d.Seq, c.now)
		ch.audience = same
		c.emit(ch)
		asked &^= same
	}
	return nil
}
