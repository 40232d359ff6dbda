package informer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// What surrounds the items of a list: what it begins with, and what follows from its end.

// beginReplace prepares for the items of a list, and reports the gap that made it necessary: once,
// however often the list has to begin again.
func (c *controller) beginReplace(ctx context.Context, d *deltafifo.Delta) error {
	if err := c.rescope(ctx, d); err != nil {
		return err
	}
	if d.Relist.Only {
		c.rescoped(d.Relist, "")
		return nil
	}
	// A list that begins again has told its gap. But history that goes back while a list is under
	// way is another gap: what comes from here on is of another epoch, and the stream has to say so
	// first.
	again := c.list.Reason != "" && (c.list.Rewound || !d.Relist.Rewound)
	c.list.Relist, c.listed = *d.Relist, event.Listing{}
	clear(c.olderItems)
	c.list.Namespaces = nil // they may be many, and the gap's own place is told without them
	if err := c.beginMarks(); err != nil {
		return err
	}
	if c.list.Rewound {
		if err := c.beginEpoch(ctx); err != nil {
			return err
		}
	}
	if !c.list.Partial() { // one namespace more or less is no hole in what is known of the others
		c.informer.history.begins(c.epoch)
		if err := c.cfg.Indexer.SetSince(""); err != nil {
			return err
		}
	}
	if c.list.Initial {
		if err := c.notTheFirst(again); err != nil {
			return err
		}
	}
	if c.list.Reason == "" && c.list.Initial && !c.postponed {
		return c.tellForgotten(ctx, d)
	}
	if c.list.Reason == "" || again {
		return nil
	}
	c.tellGap(d, c.list.Relist, 0)
	return nil
}

// beginMarks prepares for noting what a list holds.
func (c *controller) beginMarks() error {
	if c.list.Partial() {
		return c.cfg.Indexer.ClearMarks()
	}
	return c.cfg.Indexer.BeginList()
}

// reasonInterrupted is the reason of a gap before a list that has no position to resume from,
// although something is known: a first snapshot that was broken off, another selection, or a
// snapshot at each start. What happened since is not told by any watch.
const reasonInterrupted = "interrupted"

// notTheFirst gives a list without a position the reason of a gap when it is not the first:
// versions are missing then too, and deletes will be inferred. Where no list has ended yet the gap
// is postponed until an object shows that something is missing.
func (c *controller) notTheFirst(again bool) error {
	c.postponed = false
	empty, err := c.cfg.Indexer.Empty()
	if err != nil {
		return err
	}
	if empty {
		c.succeed()
		return nil
	}
	position, errPosition := c.cfg.Indexer.Position()
	owed, err := c.cfg.Indexer.GapOwed()
	c.list.From = position.Version
	switch {
	case c.list.Rewound: // which is more than that
	case owed || again:
		c.list.Reason = reasonInterrupted
	default:
		c.succeed()
		c.postponed = c.list.Reason == ""
	}
	return errors.Join(errPosition, err)
}

// succeed gives a first snapshot the reason of a gap when others have published before.
func (c *controller) succeed() {
	if c.cfg.Succeeds == nil {
		return
	}
	if from, led := c.cfg.Succeeds(); led {
		c.list.Reason, c.list.From = ReasonTakeover, from
	}
}

// beginEpoch prepares for another history of the server, and drops tombstones: versions to come may
// be lower than theirs. What is in flight goes to disk before, or it would leave new ones, and the
// end of an earlier list would end the epoch. The epoch is on disk before the tombstones go, which
// may take long: after a crash the list begins again.
func (c *controller) beginEpoch(ctx context.Context) error {
	spool := func() error { return c.log.Spool(ctx, time.Now()) }
	if err := c.informer.insist(ctx, spool); err != nil {
		return err
	}
	epoch, err := c.cfg.Indexer.BeginEpoch()
	if err != nil {
		return err
	}
	c.epoch, c.diverged = epoch.Number, false
	return c.cfg.Indexer.DropTombstones()
}

// account notes what a list holds.
func (c *controller) account(d *deltafifo.Delta, known *Known) {
	switch {
	case d.Type == deltafifo.Replaced:
		c.marks = append(c.marks, d.Key)
		c.listed.Items++
		c.compare(d, known, known.Found)
	case d.Type == deltafifo.Skipped && d.Key == "":
		c.listed.Unreadable++
		c.listed.DeletesUnknown = true // the FIFO takes nothing for gone
	case d.Type == deltafifo.Skipped:
		c.listed.Unreadable++
		c.marks = append(c.marks, d.Key)
		delete(c.olderItems, d.Key) // this may be its later state
	case d.Listed:
		c.compare(d, known, known.alive())
		exists := d.Type == deltafifo.Unselected && !d.Gone
		if exists && known.alive() && outdated(d, known, &c.list) {
			c.marks = append(c.marks, d.Key)
		}
	}
}

// endReplace tells that a list was worked through.
func (c *controller) endReplace(ctx context.Context, d *deltafifo.Delta) error {
	c.list.Incomplete = c.listed.DeletesUnknown
	if c.list.Partial() {
		c.rescoped(&c.list.Relist, d.Version)
		c.informer.logger.Info("a namespace is in sync with the selection",
			"namespace", c.list.Namespace, "selected", !c.list.Left, "objects", c.listed.Items)
		c.list.Relist = resource.Relist{}
		return c.cfg.Indexer.ClearMarks()
	}
	level := slog.LevelInfo
	if c.list.Initial {
		level = slog.LevelDebug // the whole bridge tells of its start
	}
	c.informer.logger.Log(context.Background(), level, "in sync with the API server",
		"version", d.Version, "objects", c.listed.Items, "unreadable", c.listed.Unreadable)
	c.postponed = false
	if err := c.informer.insist(ctx, c.cfg.Indexer.SetGapOwed); err != nil {
		return err
	}
	done := c.newChange(event.Change{Op: event.Synced, Version: d.Version})
	done.Kind, done.Listing, done.Since = changelog.OfListEnd, c.listed, c.list.From
	c.emit(done)
	c.rescoped(&c.list.Relist, d.Version)
	if err := c.cfg.Indexer.SetSince(d.Version); err != nil {
		return err
	}
	c.informer.history.ends(d.Version)
	if c.diverges(d.Version) {
		if err := c.setDiverged(ctx, d.Version); err != nil {
			return err
		}
	}
	c.list.Relist = resource.Relist{}
	if !c.diverged {
		c.informer.unclean.Store(false)
	}
	return c.cfg.Indexer.ClearMarks()
}
