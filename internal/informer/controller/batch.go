package controller

import (
	"context"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// batch is what was decided in this turn and not handed on yet.
type batch struct {
	decided []*changelog.Entry // of the delta that is being decided; they have no place yet
	changes []*changelog.Entry
	bytes   int            // of changes
	listed  []resource.Key // objects that a list held
	news    []store.Announcement
}

func (b *batch) reset() {
	clear(b.changes)
	b.changes, b.listed, b.news, b.bytes = b.changes[:0], b.listed[:0], b.news[:0], 0
}

// handOn puts what was decided into the log. What adds an object comes there when its announcement
// is durable. What is about all objects comes behind everything before it, and before everything
// after it.
func (c *Controller) handOn(ctx context.Context) error {
	if err := c.env.Indexer.Listing().Add(c.batch.listed); err != nil {
		return err
	}
	if len(c.batch.changes) > 0 {
		if err := c.append(ctx); err != nil {
			return err
		}
	}
	c.batch.reset()
	return nil
}

func (c *Controller) append(ctx context.Context) error {
	aboutAll := func(e *changelog.Entry) bool { return e.Kind.AboutAll(e.Key) }
	if !slices.ContainsFunc(c.batch.changes, aboutAll) {
		if err := c.env.Log.Room(ctx); err != nil {
			return err
		}
		defer c.env.Log.Offer()
		return c.announcer.append(ctx, c.batch.changes, c.batch.news)
	}
	if err := c.announcer.wait(ctx); err != nil {
		return err
	}
	if err := c.announcer.announce(ctx, c.batch.news); err != nil {
		return err
	}
	if err := c.env.Log.Room(ctx); err != nil {
		return err
	}
	c.env.Log.Append(c.batch.changes)
	c.env.Log.Offer()
	return nil
}

// persist makes something durable that what follows depends on. It waits while the disk refuses.
func (c *Controller) persist(ctx context.Context, write func() error) error {
	return store.RetryUntilWritten(ctx, c.env.Indexer, c.env.Logger, write)
}

// spool puts everything on disk that was decided before this delta, and so settles it. The log has
// it all once the announcer holds nothing: a change that waits for an announcement has its place,
// and is not appended. The wait may last until there is room in the log.
func (c *Controller) spool(ctx context.Context) error {
	if err := c.announcer.wait(ctx); err != nil {
		return err
	}
	return c.persist(ctx, func() error { return c.env.Log.Spool(ctx, time.Now()) })
}
