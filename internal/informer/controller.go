package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"github.com/kubebridge/bridge/internal/checkpoint"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// popSize is how many objects' deltas are decided at once.
const popSize = 256

// controller is the loop between the FIFO and the log. All its fields are owned by its goroutine.
type controller struct {
	*Informer
	batch   deltafifo.Batch
	changes []*change      // of this batch
	marks   []resource.Key // objects of this batch that a list held
	news    []store.Announcement
	relist  resource.Relist  // of the list that is being worked through
	listed  event.Listing    // its items so far
	older   resource.Version // the lowest known version of which the list has an older state; "" for none
	asked   bool             // whether sinks hold events of an earlier run
	telling resource.Version // of the delta that is being decided
	sweep   uint64           // the place of the list's end whose deletes are being decided, 0 for none
	number  uint64           // of the last change
	epoch   int              // of the server's history
	now     time.Time
	started time.Time
}

// run pops and decides until the FIFO is closed and empty, then closes the log.
func (c *controller) run(ctx context.Context) error {
	defer c.log.close()
	defer c.cfg.FIFO.Abandon()
	c.started = time.Now()
	if err := c.resume(); err != nil { // once more: an epoch may have been adopted
		return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
	}
	c.epoch = c.history.now()
	for {
		err := c.cfg.FIFO.Pop(ctx, &c.batch, popSize)
		if errors.Is(err, deltafifo.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.apply(ctx); err != nil {
			return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
		}
	}
}

// apply decides a batch, hands its changes to the log, and only then lets go of its places in the stream.
func (c *controller) apply(ctx context.Context) error {
	c.now = time.Now()
	c.changes, c.marks, c.news = c.changes[:0], c.marks[:0], c.news[:0]
	for i := range c.batch.Deltas {
		if err := c.begin(ctx, &c.batch.Deltas[i]); err != nil {
			return err
		}
	}
	if err := c.cfg.Indexer.Mark(c.marks); err != nil {
		return err
	}
	if err := c.announce(ctx, c.news); err != nil {
		return err
	}
	if len(c.changes) > 0 {
		if err := c.makeRoom(ctx); err != nil {
			return err
		}
		c.log.append(c.changes)
	}
	for _, deltas := range c.batch.Deltas {
		for _, d := range deltas.Items {
			if !d.FinalStateUnknown {
				c.cfg.Tracker.Done(d.Seq)
			}
		}
	}
	return nil
}

// begin takes the places in the stream of one entry, and decides its deltas.
func (c *controller) begin(ctx context.Context, deltas *deltafifo.Deltas) error {
	for _, seq := range deltas.Collapsed {
		c.cfg.Tracker.Begin(seq, checkpoint.Aside, "")
		c.cfg.Tracker.Done(seq)
	}
	for i := range deltas.Items {
		d := &deltas.Items[i]
		c.hold(d)
		if err := c.decide(ctx, deltas.Key, d); err != nil {
			return err
		}
	}
	return nil
}

// hold takes a delta's place in the stream. The deletes that a list's end implies come before the end and share its place: the first
// takes it, the end lets go of it.
func (c *controller) hold(d *deltafifo.Delta) {
	if c.sweep == d.Seq {
		return
	}
	kind, version := place(d)
	if kind == checkpoint.Listed && c.undone(version) {
		kind, version = checkpoint.Aside, "" // after a crash the list has to be made again
	}
	c.cfg.Tracker.Begin(d.Seq, kind, version)
	if d.FinalStateUnknown {
		c.sweep = d.Seq
	}
}

// place says what a delta means for the watermark.
func place(d *deltafifo.Delta) (checkpoint.Kind, resource.Version) {
	switch d.Type {
	case deltafifo.Bookmark:
		return checkpoint.Mark, d.Version
	case deltafifo.ReplaceEnd:
		if d.Relist.Partial() {
			return checkpoint.Aside, "" // the stream goes on from where it was
		}
		return checkpoint.Listed, d.Version
	case deltafifo.Added, deltafifo.Updated:
		return checkpoint.Event, d.Object.Version
	case deltafifo.Unselected:
		if d.Listed {
			return checkpoint.Aside, ""
		}
		return checkpoint.Event, d.Object.Version
	case deltafifo.Deleted:
		if d.FinalStateUnknown && d.Relist.Partial() {
			return checkpoint.Aside, ""
		}
		if d.FinalStateUnknown {
			return checkpoint.Listed, d.Version // its place is the end of the list that told it
		}
		return checkpoint.Event, d.Object.Version
	default:
		return checkpoint.Aside, ""
	}
}

// decide makes the changes of one delta.
func (c *controller) decide(ctx context.Context, key resource.Key, d *deltafifo.Delta) error {
	switch d.Type {
	case deltafifo.Bookmark:
		if !d.Passed {
			c.unsure.Store(false)
		}
		return nil
	case deltafifo.ReplaceBegin:
		return c.beginReplace(ctx, d)
	case deltafifo.ReplaceEnd:
		return c.endReplace(d)
	case deltafifo.Quarantined:
		return c.quarantined(d)
	case deltafifo.Spared:
		return c.spared(d)
	default:
		return c.decideObject(key, d)
	}
}

// decideObject makes the changes of a delta of an object.
func (c *controller) decideObject(key resource.Key, d *deltafifo.Delta) error {
	known, found, err := c.cfg.Indexer.Get(key)
	if err != nil {
		return err
	}
	alive := found && !known.Deleted
	c.telling = d.Version
	if d.Object != nil && !d.FinalStateUnknown {
		c.telling = d.Object.Version
	}
	switch d.Type {
	case deltafifo.Sync:
		return c.sync(key, d, known, alive)
	case deltafifo.Deleted:
		return c.deleted(key, d, known, found)
	case deltafifo.Unselected:
		return c.unselected(key, d, known, alive)
	case deltafifo.Replaced:
		c.marks = append(c.marks, key)
		c.listed.Items++
		c.compare(d.Object, known, found)
		if before := c.leftBefore(key, d.Object.UID, d.Object.Version); len(before) > 0 {
			return c.succeeded(key, d, known, alive, before)
		}
		if c.unchanged(d.Object, known, found) {
			return c.covered(key, d, known, alive)
		}
	default:
		if found && covers(known, d.Object.Version) {
			c.metrics.skipped.Inc()
			return nil
		}
	}
	return c.stored(key, d, known, alive, found)
}

// covered passes over an item of a list that is known already, unless every object is to be published at the first list.
func (c *controller) covered(key resource.Key, d *deltafifo.Delta, known store.Record, alive bool) error {
	if !c.cfg.Resnapshot || !c.relist.Initial || !alive {
		c.metrics.skipped.Inc()
		return nil
	}
	ch := event.Change{
		Op: event.Synced, Key: key, Object: d.Object, UID: known.UID, Version: known.Version, Initial: true, Round: c.started.Unix(),
	}
	c.emit(newChange(ch, d.Seq, c.now))
	return nil
}

// covers says whether what is known of an object includes the given version of it.
func covers(known store.Record, version resource.Version) bool {
	return version == known.Version || version.NotNewer(known.Version)
}

// unchanged says whether an item of a list tells nothing new. After a rewind only equality says so, and nothing when it is not known
// what was sent.
func (c *controller) unchanged(obj *resource.Object, known store.Record, found bool) bool {
	if !found {
		return false
	}
	if c.relist.Rewound {
		return !c.unsure.Load() && !known.Deleted && known.UID == obj.UID && known.Version == obj.Version
	}
	return covers(known, obj.Version)
}

// stored makes the change of an object that exists: Added, Updated, or the delete of another that had its name and then Added.
func (c *controller) stored(key resource.Key, d *deltafifo.Delta, known store.Record, alive, found bool) error {
	listed := d.Type == deltafifo.Replaced
	if alive && known.UID != d.Object.UID {
		if err := c.gone(key, d.Seq, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
		alive = false
	}
	ch := event.Change{Op: event.Added, Key: key, Object: d.Object, UID: d.Object.UID, Version: d.Object.Version}
	if alive {
		ch.Op, ch.Before = event.Updated, known.Version
		var err error
		if ch.Old, err = c.old(key, known); err != nil {
			return err
		}
	} else {
		ch.Cause = c.causeOfAdd(d)
		c.news = append(c.news, store.Announcement{Key: key, Object: d.Object, Seq: c.number + 1, Unknown: !found})
	}
	ch.Initial = listed && c.relist.Initial
	ch.Inferred = listed && !c.relist.Initial && !c.relist.Partial()
	c.emit(newChange(ch, d.Seq, c.now))
	return nil
}

// old is the object that a known record is of, where a listener needs it. It is read before the change becomes the newest state, so
// it is the version before, also when a crash brings the change again: what is settled then is that version.
func (c *controller) old(key resource.Key, known store.Record) (*resource.Object, error) {
	if !c.needsOld {
		return nil, nil
	}
	old, err := c.cfg.Indexer.Object(key)
	if err != nil || old == nil || old.Version != known.Version {
		return nil, err
	}
	return old, nil
}

// deleted makes the change of an object that is gone, as the watch or a list tells.
func (c *controller) deleted(key resource.Key, d *deltafifo.Delta, known store.Record, found bool) error {
	alive := found && !known.Deleted
	if d.FinalStateUnknown {
		cause := c.causeOfMissing(key)
		if alive {
			if err := c.gone(key, d.Seq, known, d.Version, cause); err != nil {
				return err
			}
		}
		return c.goneUnsettled(key, d.Seq, c.leftBefore(key, "", d.Version), d.Version, cause)
	}
	if found && covers(known, d.Object.Version) {
		c.metrics.skipped.Inc()
		return nil
	}
	ch := event.Change{Op: event.Deleted, Key: key, Object: d.Object, UID: d.Object.UID, Version: d.Object.Version, Cause: c.causeOfDelete()}
	if alive && known.UID == d.Object.UID {
		ch.Before = known.Version
	} else if alive {
		if err := c.gone(key, d.Seq, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
	}
	c.emit(newChange(ch, d.Seq, c.now))
	return nil
}

// gone makes the inferred delete of a known object, with its last state on disk, which may be an earlier one than the last that was sent
// (store.Options.BodiesPerSecond). The tombstone bears the version as of which it is gone; the event that of the last state that was sent;
// the state its own.
func (c *controller) gone(key resource.Key, seq uint64, known store.Record, asOf resource.Version, cause string) error {
	last, err := c.cfg.Indexer.Object(key)
	if err != nil {
		return err
	}
	c.emitGone(key, seq, known, last, asOf, cause)
	return nil
}

func (c *controller) emitGone(key resource.Key, seq uint64, known store.Record, last *resource.Object, asOf resource.Version, cause string) {
	ch := newChange(event.Change{
		Op: event.Deleted, Key: key, Object: last, UID: known.UID, Version: known.Version, Before: known.Version, Inferred: true,
		Cause: cause,
	}, seq, c.now)
	ch.goneAsOf = asOf
	if cause == event.CauseLeft || c.relist.Left {
		ch.left = c.hasLeft(key)
	}
	if cause == event.CauseLeft {
		ch.Inferred = !c.relist.Partial()
	}
	c.emit(ch)
}

// sync makes a Synced of an object for the listeners that asked; several where their rounds differ, since an id bears the round.
func (c *controller) sync(key resource.Key, d *deltafifo.Delta, known store.Record, alive bool) error {
	if !alive {
		return nil
	}
	obj, err := c.cfg.Indexer.Object(key)
	if err != nil || obj == nil || obj.Version != known.Version { // an earlier one must not come behind the known one
		return err
	}
	if d.Round != 0 {
		ch := newChange(event.Change{
			Op: event.Synced, Key: key, Object: obj, UID: known.UID, Version: known.Version, Initial: true, Round: d.Round,
		}, d.Seq, c.now)
		ch.audience = d.Resync
		c.emit(ch)
		return nil
	}
	for asked := d.Resync & c.everyone; asked != 0; {
		round, same := c.sameRound(asked)
		ch := newChange(event.Change{Op: event.Synced, Key: key, Object: obj, UID: known.UID, Version: known.Version, Round: round}, d.Seq, c.now)
		ch.audience = same
		c.emit(ch)
		asked &^= same
	}
	return nil
}

// beginReplace prepares for the items of a list, and tells of the gap that made it necessary: once, however often the list has to
// begin again.
func (c *controller) beginReplace(ctx context.Context, d *deltafifo.Delta) error {
	if err := c.rescope(ctx, d); err != nil {
		return err
	}
	if d.Relist.Only {
		c.rescoped(d.Seq, d.Relist, "")
		return nil
	}
	again := c.relist.Reason != ""
	c.relist, c.listed, c.older = *d.Relist, event.Listing{}, ""
	c.relist.Namespaces = nil // they may be many, and the gap's own place is told without them
	if err := c.beginMarks(); err != nil {
		return err
	}
	if c.relist.Rewound {
		if err := c.forgetDeleted(ctx); err != nil {
			return err
		}
		epoch, err := c.cfg.Indexer.BeginEpoch()
		if err != nil {
			return err
		}
		c.epoch = epoch.Number
	}
	if !c.relist.Partial() { // one namespace more or less is no hole in what is known of the others
		c.history.begins(c.epoch)
		if err := c.cfg.Indexer.SetSince(""); err != nil {
			return err
		}
	}
	if c.relist.Initial {
		if err := c.notTheFirst(); err != nil {
			return err
		}
	}
	if c.relist.Reason == "" && c.relist.Initial && !again {
		c.tellForgotten(ctx, d)
		return nil
	}
	if c.relist.Reason == "" || again {
		return nil
	}
	c.tellGap(d, c.relist, 0)
	return nil
}

// tellGap tells a gap to an audience; 0 for everyone.
func (c *controller) tellGap(d *deltafifo.Delta, why resource.Relist, audience uint64) {
	c.metrics.gap(why.Reason)
	gap := newChange(event.Change{Op: event.Gap, Version: why.To}, d.Seq, c.now)
	gap.kind, gap.relist, gap.audience = ofGap, &why, audience
	c.emit(gap)
}

// tellForgotten tells those whose sinks hold events of an earlier run, of which the state knows nothing, that the first list is not their first:
// once, however often the list has to begin again.
func (c *controller) tellForgotten(ctx context.Context, d *deltafifo.Delta) {
	if c.cfg.Forgotten == nil || c.asked {
		return
	}
	c.asked = true
	position, err := c.cfg.Indexer.Position()
	if err != nil || position.Version != "" { // nothing existed, and that is known
		return
	}
	sinks := c.cfg.Forgotten(ctx)
	if len(sinks) == 0 {
		return
	}
	c.logger.Warn("the state of an earlier run is gone: everything is sent, and what was deleted since can't be known", "sinks", sinks)
	why := c.relist
	why.Reason = resource.ReasonForgotten
	c.tellGap(d, why, c.audience(sinks))
}

// beginMarks prepares for noting what a list holds.
func (c *controller) beginMarks() error {
	if c.relist.Partial() {
		return c.cfg.Indexer.ClearMarks()
	}
	return c.cfg.Indexer.BeginList()
}

// reasonInterrupted is the reason of a gap before a list that has no position to resume from, although something is known: a first snapshot
// that was broken off, another selection, or a snapshot at each start. What happened since is not told by any watch.
const reasonInterrupted = "interrupted"

// notTheFirst gives a snapshot the reason of a gap when it is not the first: versions are missing then too, and deletes will be inferred.
func (c *controller) notTheFirst() error {
	empty, err := c.cfg.Indexer.Empty()
	if err != nil {
		return err
	}
	if empty {
		c.succeed()
		return nil
	}
	position, err := c.cfg.Indexer.Position()
	c.relist.Reason, c.relist.From = reasonInterrupted, position.Version
	return err
}

// succeed gives a first snapshot the reason of a gap when others have published before.
func (c *controller) succeed() {
	if c.cfg.Succeeds == nil {
		return
	}
	if from, led := c.cfg.Succeeds(); led {
		c.relist.Reason, c.relist.From = ReasonTakeover, from
	}
}

// forgetDeleted drops tombstones when the server's history went back: versions to come may be lower than theirs. What is on its way
// goes to disk before, or it would leave new ones.
func (c *controller) forgetDeleted(ctx context.Context) error {
	if err := c.spool(ctx, time.Now()); err != nil {
		return err
	}
	return c.cfg.Indexer.DropTombstones()
}

// endReplace tells that a list was worked through.
func (c *controller) endReplace(d *deltafifo.Delta) error {
	c.rescoped(d.Seq, &c.relist, d.Version)
	if c.relist.Partial() {
		c.logger.Info("a namespace is in step with the selection", "namespace", c.relist.Namespace, "selected", !c.relist.Left, "objects", c.listed.Items)
		c.relist = resource.Relist{}
		return c.cfg.Indexer.ClearMarks()
	}
	level := slog.LevelInfo
	if c.relist.Initial {
		level = slog.LevelDebug // the whole bridge tells of its start
	}
	c.logger.Log(context.Background(), level, "in step with the API server", "version", d.Version, "objects", c.listed.Items, "unreadable", c.listed.Unreadable)
	done := newChange(event.Change{Op: event.Synced, Version: d.Version}, d.Seq, c.now)
	done.kind, done.listing = ofSynced, c.listed
	c.emit(done)
	if err := c.cfg.Indexer.SetSince(d.Version); err != nil {
		return err
	}
	c.history.ends(d.Version)
	if c.undone(d.Version) {
		c.logger.Warn("the API server has older states of objects than were told: its history is another, and everything is compared anew", "version", d.Version, "known", c.older)
		c.cfg.Undone()
	}
	c.relist = resource.Relist{}
	c.unsure.Store(false)
	return c.cfg.Indexer.ClearMarks()
}

// emit numbers a change, makes it the newest state of its object, holds its place in the stream and puts it into the batch.
func (c *controller) emit(ch *change) {
	c.number++
	ch.number, ch.Era = c.number, event.Era{Epoch: c.epoch, Selection: c.cfg.Indexer.Selection()}
	if c.cfg.Namespaces && ch.kind == ofObject {
		ch.Entered = c.scope.of(ch.Key).Entered
	}
	if ch.audience == 0 {
		ch.audience = c.everyone
	}
	if ch.audience &= c.everyone; ch.audience == 0 {
		return // they have gone since they asked
	}
	if ch.leavesState() {
		if c.telling != ch.Version {
			ch.told = c.telling
		}
		c.died(ch)
		c.overlay(ch)
	}
	c.metrics.changes.WithLabelValues(string(ch.Op)).Inc()
	if c.cfg.Owners != nil && ch.Object != nil {
		ch.Owners = c.cfg.Owners(ch.Object)
	}
	if ch.kind == ofObject && c.order != nil {
		if c.selectListeners(ch); ch.audience == 0 {
			c.keptBack(ch)
			return
		}
		c.begun(ch)
	}
	c.cfg.Tracker.Hold(ch.seq, 1)
	listeners := ch.audience
	ch.waiting.Store(int32(bits.OnesCount64(listeners)))
	c.changes = append(c.changes, ch)
}

// died tells of an object that is about to be forgotten. What has to be written of it is in the next commit, and so in none after that of its delete.
func (c *controller) died(ch *change) {
	if ch.Op != event.Deleted || ch.Object == nil || c.cfg.Died == nil {
		return
	}
	if write := c.cfg.Died(ch.Object); write != nil {
		c.cfg.Tracker.Note(0, write)
	}
}

func (c *controller) overlay(ch *change) {
	s := ch.settled()
	upTo := c.telling
	if c.relist.Rewound || c.relist.Left {
		upTo = "" // versions say nothing
	}
	c.cfg.Indexer.Meet(ch.Key, s.UID, upTo, ch.number)
	if s.Deleted {
		c.cfg.Indexer.Delete(ch.Key, s.UID, s.Version, ch.number)
	} else {
		c.cfg.Indexer.Update(ch.Key, ch.Object, ch.number)
	}
}
