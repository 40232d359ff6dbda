package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// beginReplace prepares for the items of a list, and reports the gap that made the list necessary:
// once, however often the list has to begin again.
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
	again := c.list.Reason != "" && !c.list.Quiet && (c.list.Rewound() || !d.Relist.Rewound())
	c.list.Relist, c.listed = *d.Relist, event.Listing{}
	clear(c.olderItems)
	c.list.Namespaces = nil // they may be many, and the gap is reported without them
	if err := c.beginListing(); err != nil {
		return err
	}
	if c.list.Rewound() {
		if err := c.beginEpoch(ctx); err != nil {
			return err
		}
	}
	if !c.list.Partial() { // one namespace more or less is no hole in what is known of the others
		c.reportNewOmits("")
		c.seen.begins(c.epoch)
		if err := c.persist(ctx, c.env.Indexer.Meta().BeginList); err != nil {
			return err
		}
	}
	if c.list.Initial() {
		if err := c.decideFirstGap(ctx, d, again); err != nil {
			return err
		}
	}
	if c.list.Quiet {
		c.postponed = true
	} else if c.list.Reason != "" && !again {
		c.postponed = false
		c.emitGap(c.list.Relist, 0)
	}
	return nil
}

// beginListing prepares for recording the items of a list.
func (c *Controller) beginListing() error {
	if c.list.Partial() {
		return c.env.Indexer.Listing().Clear()
	}
	return c.env.Indexer.Listing().Begin()
}

// decideFirstGap gives a list without a position the reason of its gap, if there is one. The
// brokers are asked once for events of an earlier run, however often the list restarts.
func (c *Controller) decideFirstGap(ctx context.Context, d *deltafifo.Delta, again bool) error {
	empty, errEmpty := c.env.Indexer.Empty()
	position, errPosition := c.env.Indexer.Meta().Position()
	owed, hasSettled, errOwed := c.env.Indexer.Meta().GapOwed()
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
	if c.cfg.EarlierRuns != nil && !c.brokersAsked {
		found.Holds = func() bool {
			c.brokersAsked = true
			forgotten = c.cfg.EarlierRuns(ctx)
			return len(forgotten.Holding)+len(forgotten.Unasked) > 0
		}
	}
	c.postponed, c.listed.First = false, !hasSettled
	switch Recover(&found) {
	case Interrupted:
		c.list.Reason = reasonInterrupted
	case Takeover:
		c.list.Reason, c.list.From, c.listed.First = reasonTakeover, ledUpTo, false
	case Continued:
		c.postponed = true
	case Forgotten:
		return c.reportForgotten(ctx, d, &forgotten)
	case Rewound: // the list has its reason
	case First, Resume, Now:
	}
	return nil
}

// beginEpoch prepares for another history of the server, and drops tombstones, since versions to
// come may be lower than theirs. Pending changes go to disk before: they would leave new
// tombstones, and the end of an earlier list would end the epoch. The epoch is on disk before the
// tombstones go, which may take long: after a crash the list begins again.
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

// account records an item of a list.
func (c *Controller) account(d *deltafifo.Delta, known *KnownState) {
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
	if c.list.Reason != "" {
		c.unwatched = event.Unwatched{} // the gap has its times
	} else if since, isKnown := c.since(c.list.From); isKnown && c.now.Sub(since) > event.MaxUnwatched {
		c.markUnwatched(event.Unwatched{From: c.list.From, Since: since, Until: c.now})
	}
	c.rank(changelog.Mark{}) // what is written below is behind it
	c.rescoped(&c.list.Relist, d.Version)
	if !c.listed.DeletesUnknown { // else a start lists again
		if err := c.env.Indexer.Meta().EndList(d.Version); err != nil {
			return err
		}
	}
	c.seen.ends(d.Version)
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

// reasonInterrupted is the reason of a gap before a list without a position to resume from,
// although objects are known: a first snapshot that was broken off, another selection, or a
// snapshot at each start. No watch reports what happened since.
const reasonInterrupted = "interrupted"

// reasonTakeover is the reason of a gap before a list of a replica after others have published. It
// is reported when the replica has to publish before they have passed its list: deletes until then
// are not known.
const reasonTakeover = "takeover"

// emitGap reports a gap to some listeners; 0 for all.
func (c *Controller) emitGap(why resource.Relist, listeners changelog.Listeners) {
	c.env.Gaps.With(why.Reason).Inc()
	gap := c.newChange(event.Change{Op: event.Gap, Version: why.To})
	gap.Kind, gap.Relist, gap.For = changelog.OfGap, &why, listeners
	if since, isKnown := c.since(why.From); why.Rewound() {
		gap.NotBefore = c.live // where history went back, versions say nothing of the time before
	} else if isKnown {
		gap.NotBefore = since
	}
	c.emit(gap)
}

// reportLost reports to some listeners that the destinations of their sinks have lost what they had
// acknowledged, up to the newest version that is known.
func (c *Controller) reportLost(d *deltafifo.Delta) {
	c.emitGap(resource.Relist{
		Reason: resource.ReasonLost, To: c.env.Log.Delivered().End.Version, Loss: d.Round,
	}, changelog.Listeners(d.Listeners))
}

// emitPostponedGap reports the gap of a list that continues a first one, before the first object
// that shows that something was missed: it was published in another version, or is gone. Without
// such an object nothing is missing: the state in between was never complete. Where the watch was
// open until right before (Relist.Quiet), every change shows it.
func (c *Controller) emitPostponedGap(d *deltafifo.Delta, known *KnownState) {
	isMissed := func(dec Decision) bool {
		if c.list.Quiet {
			return dec.Op != event.Synced
		}
		isOther := func(was store.Record) bool {
			return was.UID == dec.UID && was.Version != dec.Version
		}
		return dec.Op == event.Updated || dec.Op == event.Deleted ||
			dec.Op == event.Added && slices.ContainsFunc(known.Left, isOther)
	}
	if !slices.ContainsFunc(c.decisions, isMissed) {
		return
	}
	c.postponed, c.list.Reason = false, cmp.Or(c.list.Reason, reasonInterrupted)
	c.list.Quiet = false
	c.emitGap(c.list.Relist, 0)
}

// isFirstOfList reports whether a delta is the first of its object in this list. A second one is a
// change that was not missed. It is false unless the gap is postponed.
func (c *Controller) isFirstOfList(d *deltafifo.Delta) (bool, error) {
	if !c.postponed || slices.Contains(c.batch.listed, d.Key) {
		return false, nil
	}
	isListed, err := c.env.Indexer.Listing().Has(d.Key)
	return !isListed, err
}

// reportForgotten reports to the sinks which hold events of an earlier run, unknown to the state,
// that the first list is not their first.
func (c *Controller) reportForgotten(
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
		c.emitGap(why, c.env.Log.ListenersOf(found.Holding))
	}
	if len(found.Unasked) > 0 {
		ask := c.newChange(event.Change{Op: event.Gap, Version: why.To})
		ask.Kind, ask.Relist, ask.For = changelog.OfGap, &why, c.env.Log.ListenersOf(found.Unasked)
		ask.AskBroker = true
		c.emit(ask)
	}
	return nil
}

// beginEpochAfter begins an epoch after the last one of a lost state, on disk before any event has
// it. A run that died before anything was settled has done so already: its events keep their ids.
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
	c.seen.begins(c.epoch)
	return nil
}

// An etcd that was restored from a backup, and whose version has overtaken ours before we asked (or
// was raised, as etcd advises), looks like one that has only forgotten versions. But its objects
// show it: what was changed after the backup is in an older state again, and versions of one object
// never go back in one history.
//
// A list that is only late must never look like that. What is known was in the history at its
// version. So a list of that history, as of this version or a later one, has the object in this
// state or a later one, whichever API server answers and whatever its watch cache has. What makes
// the proof is therefore an item that is older than what is known, where that is no newer than the
// list itself; a list from a cache that is behind is as of an earlier version. That holds for what
// an item is as of the list's version. A WatchList may begin with older states, if it reports the
// later ones before its end: those take the proof back, also when they can't be read, or are
// deletes.

// maxOlderItems bounds the remembered objects of which a list has an older state. One is a proof.
const maxOlderItems = 256

// compare remembers an item of a list that is older than the known state of the same object, and
// forgets it when a later state, or the delete, follows in the same list. An older delete is
// remembered too: nothing that was deleted by then is alive in a later state.
func (c *Controller) compare(d *deltafifo.Delta, known *KnownState, found bool) {
	switch was := &known.Record; {
	case c.cfg.Diverged == nil || c.list.Rewound() || c.list.Partial():
	case !found || was.UID != d.Object.UID || !was.Version.Newer(d.Object.Version):
		delete(c.olderItems, d.Key)
	case len(c.olderItems) < maxOlderItems:
		key := resource.Key(strings.Clone(string(d.Key)))
		c.olderItems[key] = resource.Version(strings.Clone(string(was.Version)))
	}
}

// diverges reports whether a list as of version proves that the history is another. A list with an
// unidentified item proves nothing: that item may be the later state of any object.
func (c *Controller) diverges(version resource.Version) bool {
	if c.listed.DeletesUnknown {
		return false
	}
	for _, known := range c.olderItems {
		if known.NotNewer(version) {
			return true
		}
	}
	return false
}

// setDiverged records on disk that the history is another. The items of the list that showed it
// move the settled state on, so after a crash another list would not show it again. Until
// everything is compared again nothing moves the watermark.
func (c *Controller) setDiverged(ctx context.Context, version resource.Version) error {
	c.env.Logger.Warn("the API server has older states of objects than were published: "+
		"its history is another, and everything is compared again",
		"version", version, "older", len(c.olderItems))
	if err := c.persist(ctx, c.env.Indexer.Meta().SetDiverged); err != nil {
		return err
	}
	c.diverged = true
	c.cfg.Diverged.Set()
	return nil
}

// reportProgress reports a bookmark's version to the listeners whose interval has passed: all
// changes up to that version come before this event, and the event waits until they are settled.
// The id has the version, so a version is reported once.
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
	if due != 0 {
		c.progress(version, event.Unwatched{}, due)
	}
}

func (c *Controller) progress(
	version resource.Version, unwatched event.Unwatched, due changelog.Listeners,
) {
	ch := c.newChange(event.Change{
		Op: event.Progress, Version: version, Before: unwatched.From,
		Origin: event.Origin{NotBefore: unwatched.Since, Time: unwatched.Until},
	})
	ch.Kind, ch.For = changelog.OfProgress, due
	c.emit(ch)
}

// unreportedOmits are the keys, by sink, that were not reported to a new stream.
type unreportedOmits struct {
	keys map[string]string
	due  changelog.Listeners
}

// reportOmits reports by which keys a stream leaves out versions, to the listeners for which these
// keys have changed since the run before. Where a list follows, its end says so. Else a consumer
// that checks the chain of versions would take the omitted ones for lost. A new stream has it
// before its first event.
func (c *Controller) reportOmits(ctx context.Context) error {
	position, err := c.env.Indexer.Meta().Position()
	if err != nil {
		return err
	}
	var due changelog.Listeners
	changed := map[string]string{} // keys by sink
	c.selectors.omits = unreportedOmits{keys: map[string]string{}}
	for n := range c.selectors.listeners {
		l := &c.selectors.listeners[n]
		now := strings.Join(l.Omits, ",")
		reported, found, err := c.env.Indexer.Meta().Omits(l.Name)
		switch {
		case err != nil:
			return err
		case found && reported == now:
			continue
		case found && position.Version != "":
			due |= l.bit
		case now != "":
			c.selectors.omits.keys[l.Name], c.selectors.omits.due = now, c.selectors.omits.due|l.bit
			continue
		}
		changed[l.Name] = now
	}
	if len(changed) == 0 {
		return nil
	}
	c.now = time.Now()
	if due != 0 {
		c.progress(position.Version, event.Unwatched{}, due)
	}
	c.rank(changelog.Mark{})
	if err := c.handOn(ctx); err != nil {
		return err
	}
	c.saveOmits(changed)
	return nil
}

// reportNewOmits reports them to new streams, as of a version; with none a list will.
func (c *Controller) reportNewOmits(version resource.Version) {
	if c.selectors.omits.due == 0 {
		return
	}
	if version != "" {
		c.progress(version, event.Unwatched{}, c.selectors.omits.due)
		c.rank(changelog.Mark{}) // it is saved once the report is settled
	}
	c.saveOmits(c.selectors.omits.keys)
	c.selectors.omits = unreportedOmits{}
}

func (c *Controller) saveOmits(keys map[string]string) {
	c.env.Log.AtCommit(func(b *store.Batch) {
		for sink, keys := range keys {
			b.SetOmits(c.env.Indexer, sink, keys)
		}
	})
}

// bound sets how early a change may have been made that became known late. The version clock bounds
// it, and what the object says itself: it was not written before it was created, nor before the
// newest entry of its managedFields, and nor was it deleted. What a list has not held is gone since
// the version before the list at the earliest.
func (c *Controller) bound(dec *Decision, d *deltafifo.Delta) {
	ofList := d.Listed || d.Type == deltafifo.Replaced
	switch {
	case dec.TimeSource != event.TimeObserved || dec.Op == event.Synced || dec.Initial:
		return
	case c.list.Rewound() && (ofList || dec.Inferred):
		return // its version says nothing of when it came back
	}
	before := dec.Version.Before()
	if dec.Inferred && dec.Op == event.Deleted {
		before = c.list.From
	}
	since, isKnown := c.since(before)
	switch {
	case isKnown && !c.isLate(since):
		if c.blind = false; !ofList && !dec.Inferred { // several events may have this version
			c.reportWatched(before)
		}
		return
	case isKnown:
		c.blind = false
	case !c.blind:
		return
	}
	if obj := dec.Object; obj != nil {
		created, _ := time.Parse(time.RFC3339, obj.CreationTimestamp)
		for _, at := range []time.Time{created, obj.Writes.Newest()} {
			if at.After(since) && !at.After(c.now) {
				since = at
			}
		}
	}
	if since.IsZero() || !c.isLate(since) {
		return
	}
	if dec.NotBefore = since; !ofList {
		c.markUnwatched(event.Unwatched{From: before, Since: since, Until: c.now})
	}
}

// reportWatched reports to all listeners that everything up to a version comes before, after an
// unwatched time. The changes of that time have their bounds; the report bounds what did not
// change.
func (c *Controller) reportWatched(version resource.Version) {
	if c.unwatched.Since.IsZero() {
		return
	}
	u := c.unwatched
	c.unwatched = event.Unwatched{}
	if opened := c.cfg.Opened(); opened.After(u.Until) && opened.Before(c.now) {
		u.Until = opened
	}
	c.progress(version, u, 0)
}
