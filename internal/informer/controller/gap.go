package controller

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// reasonInterrupted is the reason of a gap before a list that has no position to resume from,
// although something is known: a first snapshot that was broken off, another selection, or a
// snapshot at each start. What happened since is not reported by any watch.
const reasonInterrupted = "interrupted"

// reasonTakeover is the reason of a gap before a list of a replica that others were publishing
// before. It is reported when the replica has to publish before they have passed its list: what was
// deleted until then is not known.
const reasonTakeover = "takeover"

// emitGap reports a gap to some listeners; 0 for everyone.
func (c *Controller) emitGap(
	d *deltafifo.Delta, why resource.Relist, listeners changelog.Listeners,
) {
	c.env.Gaps.With(why.Reason).Inc()
	gap := c.newChange(event.Change{Op: event.Gap, Version: why.To})
	gap.Kind, gap.Relist, gap.For = changelog.OfGap, &why, listeners
	c.emit(gap)
}

// emitPostponedGap reports the gap of a list that continues with a first one, before the first
// object that shows that something was missed since: one that was published in another version, or
// is gone. Without such an object nothing is missing: what came and went in between was never
// complete.
func (c *Controller) emitPostponedGap(d *deltafifo.Delta, known *Known) {
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
	c.emitGap(d, c.list.Relist, 0)
}

// isFirstOfList reports whether a delta is the first of its object in this list. What follows in
// the same list is a change that was not missed. It is asked while the gap is postponed only.
func (c *Controller) isFirstOfList(d *deltafifo.Delta) (bool, error) {
	if !c.postponed || slices.Contains(c.batch.listed, d.Key) {
		return false, nil
	}
	isListed, err := c.env.Indexer.Listing().Has(d.Key)
	return !isListed, err
}

// emitForgottenGap reports to those whose sinks hold events of an earlier run, of which the state
// knows nothing, that the first list is not their first.
func (c *Controller) emitForgottenGap(
	ctx context.Context, d *deltafifo.Delta, found *EarlierRuns,
) error {
	if err := c.persist(ctx, c.env.Indexer.Meta().SetGapOwed); err != nil {
		return err
	}
	why := c.list.Relist
	why.Reason = resource.ReasonForgotten
	if len(found.Holding) > 0 {
		if err := c.beginEpochAfter(ctx, found.Epoch); err != nil {
			return err
		}
		c.env.Logger.Warn("the state of an earlier run is gone: everything is sent, and what "+
			"was deleted since can't be known", "sinks", found.Holding)
		c.emitGap(d, why, c.env.Log.Set(found.Holding))
	}
	if len(found.Unasked) > 0 {
		ask := c.newChange(event.Change{Op: event.Gap, Version: why.To})
		ask.Kind, ask.Relist, ask.For = changelog.OfGap, &why, c.env.Log.Set(found.Unasked)
		ask.Unasked = true
		c.emit(ask)
	}
	return nil
}

// beginEpochAfter begins an epoch behind the last one of a state that is gone, on disk before any
// event has it. A run that died before anything was settled has done so already: what it may have
// sent keeps its ids.
func (c *Controller) beginEpochAfter(ctx context.Context, last int) error {
	own, err := c.env.Indexer.Meta().Epoch()
	if err != nil {
		return err
	}
	if own.Number == 0 || own.Number < last {
		own.Number = last + 1
		adopt := func() error { return c.env.Indexer.Meta().AdoptEpoch(own.Number) }
		if err := c.persist(ctx, adopt); err != nil {
			return err
		}
	}
	c.epoch = own.Number
	c.history.begins(c.epoch)
	return nil
}
