package informer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// announce makes durable which objects are new before anybody is sent an Added of them. If the bridge dies before anything of an object is
// settled, and the object is deleted within a gap, the announcement is all that says that its delete has to be told. It waits while
// the disk refuses: reading stops, nothing is lost.
func (c *controller) announce(ctx context.Context, news []store.Announcement) error {
	if len(news) == 0 {
		return nil
	}
	for {
		if err := c.cfg.Indexer.WaitAvailable(ctx); err != nil {
			return err
		}
		err := c.cfg.Indexer.Announce(news)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrUnavailable):
			continue // the store has told of it
		}
		c.logger.Error("new objects can't be noted in the state directory; reading waits", "err", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// leftBefore are the objects that a run before has announced under a key, that nothing was heard of since, and that must be gone as of
// a version at which the name is free, or another's (uid). A later one the watch will tell.
func (c *controller) leftBefore(key resource.Key, uid string, version resource.Version) []store.Record {
	var before []store.Record
	for _, left := range c.cfg.Indexer.Left(key) {
		if left.UID != uid && (c.relist.Rewound || c.relist.Left || !left.Version.Newer(version)) {
			before = append(before, left)
		}
	}
	return before
}

// succeeded makes the changes of an object that a list holds, when others were announced under its name that are gone: whoever was sent
// their Added has dropped what was known before, so the object comes as new.
func (c *controller) succeeded(d *deltafifo.Delta, known store.Record, alive bool, before []store.Record) error {
	// One that is still there has not died, whatever its name saw; unless the server went back to before it did.
	asOf := before[len(before)-1].Version
	if alive && (known.UID != d.Object.UID || c.relist.Rewound) {
		if err := c.gone(d.Key, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
		before = slices.DeleteFunc(before, func(r store.Record) bool { return r.UID == known.UID }) // it had come again
	}
	if err := c.goneUnsettled(d.Key, before, asOf, c.causeOfEnd()); err != nil {
		return err
	}
	return c.stored(d, store.Record{}, false, true)
}

// goneUnsettled makes the inferred deletes of objects that were announced and never settled.
func (c *controller) goneUnsettled(key resource.Key, left []store.Record, asOf resource.Version, cause string) error {
	for _, rec := range left {
		last, err := c.cfg.Indexer.LeftObject(key, rec.UID)
		if err != nil {
			return err
		}
		c.emitGone(key, rec, last, asOf, cause)
	}
	return nil
}
