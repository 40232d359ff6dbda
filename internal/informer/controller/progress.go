package controller

import (
	"context"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// reportProgress reports to the listeners that want it, and for which it is time, that all changes
// up to the version of a bookmark are before this event: it waits until they are settled. The id
// has the version, so a version is reported once.
func (c *Controller) reportProgress(version resource.Version) {
	var due changelog.Listeners
	for n := range c.selectors.listeners {
		l := &c.selectors.listeners[n]
		every := l.Progress
		if every == 0 || version == l.progress.version || c.now.Sub(l.progress.at) < every {
			continue
		}
		l.progress.version, l.progress.at = version, c.now
		due |= l.bit
	}
	c.progress(version, due)
}

func (c *Controller) progress(version resource.Version, due changelog.Listeners) {
	if due == 0 {
		return
	}
	ch := c.newChange(event.Change{Op: event.Progress, Version: version})
	ch.Kind, ch.For = changelog.OfProgress, due
	c.emit(ch)
}

// reportOmits reports to the listeners whose stream leaves out other versions than in the run
// before by which keys it does so. Where a list follows, its end says that. Else nothing would, and
// whoever checks the chain of versions would take those that are left out for lost.
func (c *Controller) reportOmits(ctx context.Context) error {
	position, err := c.env.Indexer.Meta().Position()
	if err != nil {
		return err
	}
	var due changelog.Listeners
	changed := map[string]string{} // keys by sink
	for n := range c.selectors.listeners {
		l := &c.selectors.listeners[n]
		now := strings.Join(l.Omits, ",")
		reported, found, err := c.env.Indexer.Meta().Omits(l.Name)
		switch {
		case err != nil:
			return err
		case found && reported == now:
			continue
		case found && position.Version != "": // a new sink does not have what was before
			due |= l.bit
		}
		changed[l.Name] = now
	}
	if len(changed) == 0 {
		return nil
	}
	c.now = time.Now()
	c.progress(position.Version, due)
	c.place(changelog.Mark{})
	if err := c.handOn(ctx); err != nil {
		return err
	}
	c.env.Log.AtCommit(func(b *store.Batch) {
		for sink, keys := range changed {
			b.SetOmits(c.env.Indexer, sink, keys)
		}
	})
	return nil
}
