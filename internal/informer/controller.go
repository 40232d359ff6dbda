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

// decidedBytes is how much of changes waits for the rest of its turn: what a delta carries is counted in
// the FIFO, but what is looked up for it is not.
const decidedBytes = 4 << 20

// controller is the loop between the FIFO and the log. All its fields are owned by its goroutine.
type controller struct {
	*Informer
	changes []*change      // of this turn, those that are not in the log yet
	bytes   int            // of changes
	marks   []resource.Key // objects of this turn that a list held
	news    []store.Announcement
	relist  resource.Relist                   // of the list that is being worked through
	listed  event.Listing                     // its items so far
	older   map[resource.Key]resource.Version // the known versions of which the list has an older state
	proven  bool                              // a list has shown that the server's history is another; the one that follows from that has not begun
	asked   bool                              // whether sinks hold events of an earlier run
	telling resource.Version                  // of the delta that is being decided
	place   uint64                            // in the stream, of the delta that is being decided
	number  uint64                            // of the last change
	epoch   int                               // of the server's history
	now     time.Time
	started time.Time
}

// run pops and decides until the FIFO is closed and empty, then closes the log.
func (c *controller) run(ctx context.Context) error {
	defer c.log.close()
	c.started, c.older = time.Now(), map[resource.Key]resource.Version{}
	if err := c.resume(); err != nil { // once more: an epoch may have been adopted
		return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
	}
	c.epoch = c.history.now()
	for {
		if err := c.cfg.FIFO.Pop(ctx, c); errors.Is(err, deltafifo.ErrClosed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
		}
	}
}

// Process decides deltas, hands their changes to the log, and only then lets go of their places in the
// stream.
func (c *controller) Process(ctx context.Context, deltas deltafifo.Deltas) error {
	c.now = time.Now()
	for i := range deltas {
		c.hold(&deltas[i])
		if err := c.decide(ctx, &deltas[i]); err != nil {
			return err
		}
		if c.bytes > decidedBytes {
			if err := c.handOn(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.handOn(ctx); err != nil {
		return err
	}
	c.cfg.Tracker.Done(c.place+1-uint64(len(deltas)), c.place)
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

// hold takes a delta's place in the stream.
func (c *controller) hold(d *deltafifo.Delta) {
	kind, version := mark(d)
	if c.proven || kind == checkpoint.Listed && c.undone(version) {
		// No more of the known history comes, and what diverged from it is not decided yet.
		kind, version = checkpoint.Aside, ""
	}
	c.place = c.cfg.Tracker.Begin(kind, version)
}

// mark says what a delta means for the watermark.
func mark(d *deltafifo.Delta) (checkpoint.Kind, resource.Version) {
	switch d.Type {
	case deltafifo.Bookmark:
		return checkpoint.Mark, d.Version
	case deltafifo.ReplaceEnd:
		if d.Relist.Partial() {
			return checkpoint.Aside, "" // the stream goes on from where it was
		}
		return checkpoint.Listed, d.Version
	case deltafifo.Added, deltafifo.Updated, deltafifo.Unselected, deltafifo.Deleted:
		if d.FinalStateUnknown || d.Listed {
			return checkpoint.Aside, "" // part of a list
		}
		return checkpoint.Event, d.Object.Version
	default:
		return checkpoint.Aside, ""
	}
}

// decide makes the changes of one delta.
func (c *controller) decide(ctx context.Context, d *deltafifo.Delta) error {
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
		return c.decideObject(d)
	}
}
