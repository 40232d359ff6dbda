package informer

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// tellGap tells a gap to some listeners; 0 for everyone.
func (c *controller) tellGap(d *deltafifo.Delta, why resource.Relist, listeners changelog.Listeners) {
	c.informer.metrics.gap(why.Reason)
	gap := c.newChange(event.Change{Op: event.Gap, Version: why.To})
	gap.Kind, gap.Relist, gap.For = changelog.OfGap, &why, listeners
	c.emit(gap)
}

// tellPostponed reports the gap of a list that continues with a first one, before the first object
// that shows that something was missed since: one that was published in another version, or is
// gone. Without such an object nothing is missing: what came and went in between was never
// complete.
func (c *controller) tellPostponed(d *deltafifo.Delta, known *Known) {
	isMissed := func(dec Decision) bool {
		isOther := func(was store.Record) bool {
			return was.UID == dec.UID && was.Version != dec.Version
		}
		return dec.Op == event.Updated || dec.Op == event.Deleted ||
			dec.Op == event.Added && slices.ContainsFunc(known.Left, isOther)
	}
	if !slices.ContainsFunc(c.decisions, isMissed) {
		return
	}
	c.postponed, c.list.Reason = false, reasonInterrupted
	c.tellGap(d, c.list.Relist, 0)
}

// isFirstOfList reports whether a delta is the first of its object in this list. What follows in
// the same list is a change that was not missed. It is asked while the gap is postponed only.
func (c *controller) isFirstOfList(d *deltafifo.Delta) (bool, error) {
	if !c.postponed || slices.Contains(c.marks, d.Key) {
		return false, nil
	}
	isListed, err := c.cfg.Indexer.Marked(d.Key)
	return !isListed, err
}

// tellForgotten tells those whose sinks hold events of an earlier run, of which the state knows
// nothing, that the first list is not their first: once, however often the list has to begin again.
func (c *controller) tellForgotten(ctx context.Context, d *deltafifo.Delta) error {
	if c.cfg.Forgotten == nil || c.asked {
		return nil
	}
	c.asked = true
	position, err := c.cfg.Indexer.Position()
	if err != nil || position.Version != "" { // nothing existed, and that is known
		return err
	}
	found := c.cfg.Forgotten(ctx)
	if len(found.Holding)+len(found.Unasked) > 0 {
		if err := c.informer.insist(ctx, c.cfg.Indexer.SetGapOwed); err != nil {
			return err
		}
	}
	why := c.list.Relist
	why.Reason = resource.ReasonForgotten
	if len(found.Holding) > 0 {
		if err := c.outlive(ctx, found.Epoch); err != nil {
			return err
		}
		c.informer.logger.Warn("the state of an earlier run is gone: everything is sent, and what "+
			"was deleted since can't be known", "sinks", found.Holding)
		c.tellGap(d, why, c.log.Set(found.Holding))
	}
	if len(found.Unasked) > 0 {
		ask := c.newChange(event.Change{Op: event.Gap, Version: why.To})
		ask.Kind, ask.Relist, ask.For = changelog.OfGap, &why, c.log.Set(found.Unasked)
		ask.Unasked = true
		c.emit(ask)
	}
	return nil
}

// outlive begins an epoch behind the last one of a state that is gone, on disk before anything
// bears it. A run that died before anything was settled has done so already: what it may have sent
// keeps its ids.
func (c *controller) outlive(ctx context.Context, last int) error {
	own, err := c.cfg.Indexer.Epoch()
	if err != nil {
		return err
	}
	if own.Number == 0 || own.Number < last {
		own.Number = last + 1
		adopt := func() error { return c.cfg.Indexer.AdoptEpoch(own.Number) }
		if err := c.informer.insist(ctx, adopt); err != nil {
			return err
		}
	}
	c.epoch = own.Number
	c.informer.history.begins(c.epoch)
	return nil
}
