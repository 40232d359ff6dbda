package controller

import (
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// attribute sets who made a change and when, from the managedFields of this version and the known
// one. It leaves a value empty rather than take an older change's. For one uid the time never goes
// back: a managedFields time, a whole second, is not used when the event before has a later time.
// An earlier object of the same name does not count: its delete may have been observed late.
func (c *Controller) attribute(dec *Decision, d *deltafifo.Delta, known *KnownState) error {
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
		return nil
	}
	writes := dec.Object.Writes
	if dec.Op == event.Deleted {
		by, isKnown := writes.LastSetter(before.Written)
		if isKnown && d.Type == deltafifo.Deleted && !c.isUnread(dec.Key) {
			dec.LastManager = by.Manager
		}
		dec.Written = writes.After(nil)
		return nil
	}
	by, isWriter, err := c.writer(dec, d, &before)
	if isWriter {
		dec.By = by.FieldManager
		switch at := by.Time; {
		case at.After(c.now.Add(resource.MaxClockSkew)):
			c.warnClocks(at)
		case !at.Before(last):
			dec.Time, dec.TimeSource = at, event.TimeManagedFields
		}
	}
	dec.Written = writes.After(by)
	return err
}

// warnClocks says once that the clocks of the API server and of this machine are apart.
func (c *Controller) warnClocks(at time.Time) {
	if c.clocksWarned {
		return
	}
	c.clocksWarned = true
	c.env.Logger.Warn("the API server has written a time that is not reached here: its clock is "+
		"ahead, or this one is behind; such times are not used",
		"ahead", at.Sub(c.now).Round(time.Second))
}

// writer returns the managedFields entry of the manager that has set a value last, nil where that
// is not known, and whether it was set with this change.
func (c *Controller) writer(
	dec *Decision, d *deltafifo.Delta, before *store.Record,
) (by *resource.Entry, isWriter bool, err error) {
	writes := dec.Object.Writes
	if !c.follows(dec, d) {
		return nil, false, nil
	}
	if dec.Op == event.Added {
		if sole, ok := writes.Sole(); ok {
			return &sole, true, nil
		}
		return nil, false, nil
	}
	e, n := writes.Since(before.Written)
	switch {
	case n > 1:
		return nil, false, nil
	case n == 1 && e.MayBeSince(time.Unix(0, before.EventTime).Add(-resource.MaxClockSkew)):
		return &e, true, nil
	case n == 0 && !writes.MayBeSince(c.now.Add(-resource.MaxClockSkew)):
		// The write before was not of this second, so nothing was set: comparing is of no use, and
		// takes as long as everything else.
		return nil, false, nil
	}
	old := dec.Old
	if old == nil {
		if old, err = c.env.Indexer.Object(dec.Key); err != nil || old == nil || old.Version != dec.Before {
			return nil, false, err
		}
	}
	setter, isWriter, isSet := dec.Object.Setter(old)
	switch {
	case n == 1:
		// The API server's clock is behind, or a client has sent an entry of long ago: the writer's
		// owns what was set.
		if isSet && isWriter && setter.Is(&e) {
			return &e, true, nil
		}
	case !isSet:
		if e, ok := writes.LastSetter(before.Written); ok {
			return &e, false, nil
		}
	case isWriter && setter.MayBeSince(c.now.Add(-resource.MaxClockSkew)):
		return &setter, true, nil
	}
	return nil, false, nil
}

// follows reports whether a change brings the version right after the known one, so that this
// change wrote what is new in its managedFields. A list leaves versions out, and so does an
// unreadable version. An Added is the first version of its object where the API server does not
// select. Where it does, the object may have been changed until it was selected.
func (c *Controller) follows(dec *Decision, d *deltafifo.Delta) bool {
	switch {
	case c.isUnread(dec.Key):
		return false
	case dec.Op == event.Updated:
		return d.Type == deltafifo.Updated
	case dec.Op == event.Added:
		return d.Type == deltafifo.Added && !c.list.Leavable && isFirst(d.Object)
	}
	return false
}

// isUnread reports whether a version of an object was unreadable, and the next one is not decided.
func (c *Controller) isUnread(key resource.Key) bool {
	return c.env.Indexer.Announcements().Unread(key)
}

// isFirst reports whether an object was written last when it was created. Both times are of one
// request, and may lie on both sides of a full second.
func isFirst(obj *resource.Object) bool {
	created, err := time.Parse(time.RFC3339, obj.CreationTimestamp)
	return err == nil && obj.Writes.Newest().Sub(created).Abs() <= time.Second
}

// markUnread records that a version of an object can't be read. The next version has no manager
// then, since its managedFields include this version's writer.
func (c *Controller) markUnread(key resource.Key) error {
	if key == "" {
		return nil
	}
	rec, found, err := c.env.Indexer.Get(key)
	if err != nil || !found || rec.Deleted {
		return err
	}
	return c.env.Indexer.Announcements().MarkUnread(key, rec.UID, c.number.Load()+1)
}

func (c *Controller) since(v resource.Version) (time.Time, bool) {
	if c.cfg.Since == nil || !v.Ordered() {
		return time.Time{}, false
	}
	return c.cfg.Since(v)
}

// leastUnwatched is how long a restart, or an interruption of the watch, may take without a word
// about that.
const leastUnwatched = time.Second

// isLate reports whether what may have been made at a time, and is decided now, became known late.
func (c *Controller) isLate(since time.Time) bool {
	return c.now.Sub(since) > event.MaxUnwatched || c.cfg.Restarted.Sub(since) > leastUnwatched ||
		c.cfg.Since != nil && c.cfg.Reopened().Sub(since) > leastUnwatched
}

// resumeWatch notes since when nobody has watched, at the start of a run that continues a watch.
func (c *Controller) resumeWatch() {
	r := c.cfg.Resumed
	c.unwatched, c.blind, c.live = event.Unwatched{}, r.From != "" && r.Since.IsZero(), r.Since
	if c.now = time.Now(); c.blind || r.From == "" || !c.isLate(r.Since) {
		return
	}
	c.unwatched = r
	c.unwatched.Until = c.now
}

// markUnwatched notes an unwatched time, or in which the watch was late.
func (c *Controller) markUnwatched(u event.Unwatched) {
	was := c.unwatched
	if !was.Since.IsZero() && was.Since.Before(u.Since) {
		u.From, u.Since = was.From, was.Since
	}
	if was.Until.After(u.Until) {
		u.Until = was.Until
	}
	c.unwatched = u
}
