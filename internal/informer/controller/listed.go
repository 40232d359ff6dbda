package controller

import (
	"context"
	"errors"
	"log/slog"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// What surrounds the items of a list: what it begins with, and what follows from its end.

// beginReplace prepares for the items of a list, and reports the gap that made it necessary: once,
// however often the list has to begin again.
func (c *Controller) beginReplace(ctx context.Context, d *deltafifo.Delta) error {
	if err := c.rescope(ctx, d); err != nil {
		return err
	}
	if d.Relist.Kind == resource.RelistSelection {
		c.rescoped(d.Relist, "")
		return nil
	}
	// A list that begins again has reported its gap. But history that goes back while a list is
	// under way is another gap: what comes from here on is of another epoch, and the stream has to
	// say so first.
	again := c.list.Reason != "" && (c.list.Rewound() || !d.Relist.Rewound())
	c.list.Relist, c.listed = *d.Relist, event.Listing{}
	clear(c.olderItems)
	c.list.Namespaces = nil // they may be many, and the gap's own place is reported without them
	if err := c.beginListing(); err != nil {
		return err
	}
	if c.list.Rewound() {
		if err := c.beginEpoch(ctx); err != nil {
			return err
		}
	}
	if !c.list.Partial() { // one namespace more or less is no hole in what is known of the others
		c.history.begins(c.epoch)
		if err := c.persist(ctx, c.env.Indexer.Meta().BeginList); err != nil {
			return err
		}
	}
	if c.list.Initial() {
		if err := c.decideFirstGap(ctx, d, again); err != nil {
			return err
		}
	}
	if c.list.Reason == "" || again {
		return nil
	}
	c.emitGap(d, c.list.Relist, 0)
	return nil
}

// beginListing prepares for noting what a list holds.
func (c *Controller) beginListing() error {
	if c.list.Partial() {
		return c.env.Indexer.Listing().Clear()
	}
	return c.env.Indexer.Listing().Begin()
}

// decideFirstGap gives a list without a position the reason of its gap, if there is one. That there
// are no events of an earlier run the brokers are asked for once, however often the list restarts.
func (c *Controller) decideFirstGap(ctx context.Context, d *deltafifo.Delta, again bool) error {
	empty, errEmpty := c.env.Indexer.Empty()
	position, errPosition := c.env.Indexer.Meta().Position()
	owed, errOwed := c.env.Indexer.Meta().GapOwed()
	if err := errors.Join(errEmpty, errPosition, errOwed); err != nil {
		return err
	}
	if !empty || c.pending {
		c.list.From = position.Version
	}
	var ledUpTo resource.Version
	var forgotten EarlierRuns
	found := StartState{
		Diverged: c.list.Rewound(), Pending: c.pending, Watermark: position.Version != "", Lists: true,
		Known: !empty, Complete: owed || again,
	}
	if c.cfg.Succeeds != nil {
		found.Led = func() (led bool) {
			ledUpTo, led = c.cfg.Succeeds()
			return led
		}
	}
	if c.cfg.Forgotten != nil && !c.asked {
		found.Holds = func() bool {
			c.asked = true
			forgotten = c.cfg.Forgotten(ctx)
			return len(forgotten.Holding)+len(forgotten.Unasked) > 0
		}
	}
	c.postponed = false
	switch Recover(&found) {
	case Interrupted:
		c.list.Reason = reasonInterrupted
	case Takeover:
		c.list.Reason, c.list.From = reasonTakeover, ledUpTo
	case Continued:
		c.postponed = true
	case Forgotten:
		return c.emitForgottenGap(ctx, d, &forgotten)
	case Rewound: // the list has its reason
	case First, Resume, Now:
	}
	return nil
}

// beginEpoch prepares for another history of the server, and drops tombstones: versions to come may
// be lower than theirs. What is in flight goes to disk before, or it would leave new ones, and the
// end of an earlier list would end the epoch. The epoch is on disk before the tombstones go, which
// may take long: after a crash the list begins again.
func (c *Controller) beginEpoch(ctx context.Context) error {
	if err := c.spool(ctx); err != nil {
		return err
	}
	epoch, err := c.env.Indexer.Meta().BeginEpoch()
	if err != nil {
		return err
	}
	c.epoch, c.diverged = epoch.Number, false
	return c.env.Indexer.Rewind()
}

// account notes what a list holds.
func (c *Controller) account(d *deltafifo.Delta, known *Known) {
	switch {
	case d.Type == deltafifo.Replaced:
		c.batch.listed = append(c.batch.listed, d.Key)
		c.listed.Items++
		c.compare(d, known, known.Found)
	case d.Type == deltafifo.Skipped && d.Key == "":
		c.listed.Unreadable++
		c.listed.DeletesUnknown = true // the FIFO takes nothing for gone
	case d.Type == deltafifo.Skipped:
		c.listed.Unreadable++
		c.batch.listed = append(c.batch.listed, d.Key)
		delete(c.olderItems, d.Key) // this may be its later state
	case d.Listed:
		c.compare(d, known, known.alive())
		exists := d.Type == deltafifo.Unselected && !d.Gone
		if exists && known.alive() && outdated(d, known, &c.list) {
			c.batch.listed = append(c.batch.listed, d.Key)
		}
	}
}

// endReplace reports that a list was worked through.
func (c *Controller) endReplace(ctx context.Context, d *deltafifo.Delta) error {
	c.list.Incomplete = c.listed.DeletesUnknown
	if c.list.Partial() {
		c.rescoped(&c.list.Relist, d.Version)
		c.env.Logger.Info("a namespace is in sync with the selection",
			"namespace", c.list.Namespace, "selected", !c.list.Leaves(), "objects", c.listed.Items)
		c.list.Relist = resource.Relist{}
		return c.env.Indexer.Listing().Clear()
	}
	level := slog.LevelInfo
	if c.list.Initial() {
		level = slog.LevelDebug // the whole bridge logs its start
	}
	c.env.Logger.Log(context.Background(), level, "in sync with the API server",
		"version", d.Version, "objects", c.listed.Items, "unreadable", c.listed.Unreadable)
	c.postponed = false
	if err := c.persist(ctx, c.env.Indexer.Meta().SetGapOwed); err != nil {
		return err
	}
	done := c.newChange(event.Change{Op: event.Synced, Version: d.Version})
	done.Kind, done.Listing, done.Since = changelog.OfListEnd, c.listed, c.list.From
	c.emit(done)
	c.place(changelog.Mark{}) // what is written below is behind it
	c.rescoped(&c.list.Relist, d.Version)
	if !c.listed.DeletesUnknown { // else a start lists again
		if err := c.env.Indexer.Meta().EndList(d.Version); err != nil {
			return err
		}
	}
	c.history.ends(d.Version)
	if c.diverges(d.Version) {
		if err := c.setDiverged(ctx, d.Version); err != nil {
			return err
		}
	}
	c.list.Relist = resource.Relist{}
	if !c.diverged {
		c.unclean.Store(false)
	}
	return c.env.Indexer.Listing().Clear()
}
