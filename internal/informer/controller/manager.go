package controller

import (
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// maxClockSkew is how far the API server's clock may be ahead. A client may send managedFields, so
// an entry of a later time is no word of the API server: its time would be that of all events to
// come.
const maxClockSkew = 5 * time.Minute

// attribute finds out who made a change and when, as far as the managedFields of this version and
// of those before it show that. What can't be known stays empty: an older change's manager would be
// wrong. The time never goes back for one uid, so that of an entry, which is a whole second, gives
// way to the later one of an earlier event. It is not compared with that of another object which
// had the name: a delete that was observed late would hide when its successor was made.
func (c *Controller) attribute(dec *Decision, d *deltafifo.Delta, known *KnownState) {
	var before store.Record
	if known.Found && known.Record.UID == dec.UID {
		before = known.Record
	}
	dec.Time, dec.TimeSource = c.now, event.TimeObserved
	last := time.Unix(0, before.EventTime)
	if dec.Time.Before(last) || dec.Op == event.Synced && before.EventTime != 0 {
		dec.Time = last // a Synced repeats that event's state
	}
	dec.Written = before.Written
	if dec.Op == event.Synced || dec.Object == nil {
		return
	}
	writes, at := dec.Object.Writes, dec.Object.Writes.Time()
	switch {
	case dec.Op == event.Deleted:
		by, _ := writes.Sole()
		dec.LastManager = by.Manager
	case c.follows(dec, d) && !at.After(c.now.Add(maxClockSkew)):
		var isKnown bool
		if dec.By, isKnown = writes.Since(before.Written); isKnown && !at.Before(last) {
			dec.Time, dec.TimeSource = at, event.TimeManagedFields
		}
	case c.list.Rewound():
		dec.Written = resource.Written{} // of what was undone
	}
	dec.Written = writes.After(dec.Written)
}

// follows reports whether a change brings the very version behind the one that is known, so that
// what is new in its managedFields was written by this change. A list leaves versions out, and so
// does what can't be read. An Added is the first version of its object where the API server does
// not select: there it may be that of an object which was changed until it was selected.
func (c *Controller) follows(dec *Decision, d *deltafifo.Delta) bool {
	switch {
	case c.env.Indexer.Announcements().Unread(dec.Key):
		return false
	case dec.Op == event.Updated:
		return d.Type == deltafifo.Updated
	case dec.Op == event.Added:
		return d.Type == deltafifo.Added && !c.list.Leavable && isFirst(d.Object)
	}
	return false
}

// isFirst reports whether an object was written last when it was created. Both times are of one
// request, and may lie on both sides of a full second.
func isFirst(obj *resource.Object) bool {
	created, err := time.Parse(time.RFC3339, obj.CreationTimestamp)
	return err == nil && obj.Writes.Time().Sub(created).Abs() <= time.Second
}

// missed records that a version of an object can't be read. Whoever wrote it may be taken for the
// writer of the next one, so that has no manager.
func (c *Controller) missed(key resource.Key) error {
	if key == "" {
		return nil
	}
	rec, found, err := c.env.Indexer.Get(key)
	if err != nil || !found || rec.Deleted {
		return err
	}
	return c.env.Indexer.Announcements().MarkUnread(key, rec.UID, c.number.Load()+1)
}
