package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/checkpoint"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// popSize is how many objects' deltas are decided at once.
const popSize = 256

// decidedBytes is how much of changes waits for the rest of its batch: what a delta carries is counted in the FIFO, but what is looked up for it is not.
const decidedBytes = 4 << 20

// controller is the loop between the FIFO and the log. All its fields are owned by its goroutine.
type controller struct {
	*Informer
	batch   deltafifo.Batch
	changes []*change      // of this batch, those that are not in the log yet
	bytes   int            // of changes
	marks   []resource.Key // objects of this batch that a list held
	news    []store.Announcement
	relist  resource.Relist                   // of the list that is being worked through
	listed  event.Listing                     // its items so far
	older   map[resource.Key]resource.Version // the known versions of which the list has an older state
	proven  bool                              // a list has shown that the server's history is another; the one that follows from that has not begun
	asked   bool                              // whether sinks hold events of an earlier run
	telling resource.Version                  // of the delta that is being decided
	sweep   uint64                            // the place of the list's end whose deletes are being decided, 0 for none
	number  uint64                            // of the last change
	epoch   int                               // of the server's history
	now     time.Time
	started time.Time
}

// run pops and decides until the FIFO is closed and empty, then closes the log.
func (c *controller) run(ctx context.Context) error {
	defer c.log.close()
	defer c.cfg.FIFO.Abandon()
	c.started, c.older = time.Now(), map[resource.Key]resource.Version{}
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
	for i := range c.batch.Deltas {
		if err := c.begin(ctx, &c.batch.Deltas[i]); err != nil {
			return err
		}
	}
	if err := c.handOn(ctx); err != nil {
		return err
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

// handOn puts what was decided into the log.
func (c *controller) handOn(ctx context.Context) error {
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
	clear(c.changes)
	c.changes, c.marks, c.news, c.bytes = c.changes[:0], c.marks[:0], c.news[:0], 0
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
		if c.bytes > decidedBytes {
			if err := c.handOn(ctx); err != nil {
				return err
			}
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
	if c.proven || kind == checkpoint.Listed && c.undone(version) {
		kind, version = checkpoint.Aside, "" // of the history that is known nothing more comes, and what is undone in it is not told yet
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
	case deltafifo.Added, deltafifo.Updated, deltafifo.Unselected, deltafifo.Deleted:
		switch {
		case d.FinalStateUnknown && d.Relist.Partial(), d.Listed:
			return checkpoint.Aside, ""
		case d.FinalStateUnknown:
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
		if !d.Passed && !c.proven {
			c.unsure.Store(false)
		}
		return nil
	case deltafifo.ReplaceBegin:
		return c.beginReplace(ctx, d)
	case deltafifo.ReplaceEnd:
		return c.endReplace(ctx, d)
	case deltafifo.Quarantined:
		return c.quarantined(d)
	case deltafifo.Spared:
		return c.spared(d)
	default:
		return c.decideObject(key, d)
	}
}
