package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// decidedBytes is how much of changes waits for the rest of its turn: what a delta carries is
// counted in the FIFO, but what is looked up for it is not.
const decidedBytes = 4 << 20

// promptBytes is how large an object is before which those are handed on that wait for no
// announcement. Deciding takes time in proportion to the object: filters decode it.
const promptBytes = 64 << 10

// controller is the loop between the FIFO and the log. All its fields are owned by its goroutine.
type controller struct {
	informer  *Informer
	cfg       *Config        // of informer
	log       *changelog.Log // of informer
	announcer *announcer
	changes   []*changelog.Entry // of this turn, those that were not handed on yet
	bytes     int                // of changes
	marks     []resource.Key     // objects of this turn that a list held
	news      []store.Announcement
	list      List          // that is being worked through
	postponed bool          // the gap of list is; see tellPostponed
	listed    event.Listing // its items so far
	// olderItems are the known versions of objects of which the list has an older state.
	olderItems map[resource.Key]resource.Version
	// diverged: a list has shown that the server's history is another, and the list that follows
	// from that has not begun.
	diverged  bool
	decisions []Decision
	asked     bool   // whether sinks hold events of an earlier run
	number    uint64 // of the last change
	epoch     int    // of the server's history
	now       time.Time
}

// run pops and decides until the FIFO is closed and empty, then closes the log.
func (c *controller) run(ctx context.Context) error {
	defer c.log.Close()
	ctx, stop := context.WithCancel(ctx)
	c.announcer = newAnnouncer(c.informer)
	defer c.announcer.writing.Wait()
	defer stop()
	c.olderItems = map[resource.Key]resource.Version{}
	c.list = List{Selective: c.cfg.Selective, Leavable: c.cfg.Leavable, Enterable: c.cfg.Enterable}
	if c.cfg.Resnapshot {
		c.list.Round = time.Now().Unix()
	}
	if err := c.informer.resume(); err != nil { // once more: an epoch may have been adopted
		return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
	}
	c.epoch = c.informer.history.now()
	if err := c.reportOmits(ctx); err != nil {
		return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
	}
	for {
		err := c.cfg.FIFO.Pop(ctx, c)
		if errors.Is(err, deltafifo.ErrClosed) {
			return c.announcer.wait(ctx)
		}
		if err != nil {
			return fmt.Errorf("informer %s: %w", c.cfg.Name, err)
		}
	}
}

// Process decides deltas and hands their changes to the log.
func (c *controller) Process(ctx context.Context, deltas deltafifo.Deltas) error {
	c.now = time.Now()
	for i := range deltas {
		if c.isDue(&deltas[i]) {
			if err := c.handOn(ctx); err != nil {
				return err
			}
		}
		if err := c.decideAndMark(ctx, &deltas[i]); err != nil {
			return err
		}
	}
	return c.handOn(ctx)
}

// isDue reports whether what was decided is handed on before the next delta is. What needs a write
// to the disk is handed on in large parts: announcements, and marks of a list.
func (c *controller) isDue(next *deltafifo.Delta) bool {
	isLarge := next.Object != nil && next.Object.Size() > promptBytes
	return c.bytes > decidedBytes || isLarge && len(c.changes) > 0 && len(c.news)+len(c.marks) == 0
}

// TryProcess decides changes of objects that are known already, and progress, and hands them on. It
// stops where something has to be waited for: an announcement, room, the disk, a list, a resync.
func (c *controller) TryProcess(deltas deltafifo.Deltas) (n int, err error) {
	if c.diverged || c.postponed || !c.log.HasRoom() || !c.announcer.isIdle() {
		return 0, nil
	}
	c.now = time.Now()
	for n < len(deltas) {
		d := &deltas[n]
		known, err := c.known(d)
		if err != nil || !isPlain(d, &known) {
			break // an error comes again in Process
		}
		m := c.mark(d)
		if d.Type != deltafifo.Bookmark {
			if err := c.decideKnown(d, &known); err != nil {
				return n, err
			}
		}
		c.put(m)
		n++
	}
	c.log.Append(c.changes)
	c.log.Offer()
	c.handedOn()
	return n, nil
}

// isPlain reports whether deciding a delta announces nothing and waits for nothing.
func isPlain(d *deltafifo.Delta, known *Known) bool {
	switch d.Type {
	case deltafifo.Bookmark:
		return d.Progress
	case deltafifo.Updated, deltafifo.Deleted:
		isAlive := known.Found && !known.Record.Deleted && known.Record.UID == d.Object.UID
		return isAlive && len(known.Left) == 0
	default:
		return false
	}
}

// handOn puts what was decided into the log. What adds an object comes there when its announcement
// is durable. What is about all objects comes behind everything before it, and before everything
// after it.
func (c *controller) handOn(ctx context.Context) error {
	if err := c.cfg.Indexer.Mark(c.marks); err != nil {
		return err
	}
	if len(c.changes) > 0 {
		if err := c.append(ctx); err != nil {
			return err
		}
	}
	c.handedOn()
	return nil
}

func (c *controller) handedOn() {
	clear(c.changes)
	c.changes, c.marks, c.news, c.bytes = c.changes[:0], c.marks[:0], c.news[:0], 0
}

func (c *controller) append(ctx context.Context) error {
	aboutAll := func(e *changelog.Entry) bool { return e.Kind.AboutAll(e.Key) }
	if !slices.ContainsFunc(c.changes, aboutAll) {
		if err := c.log.Room(ctx); err != nil {
			return err
		}
		defer c.log.Offer()
		return c.announcer.append(ctx, c.changes, c.news)
	}
	if err := c.announcer.wait(ctx); err != nil {
		return err
	}
	if err := c.informer.announce(ctx, c.news); err != nil {
		return err
	}
	if err := c.log.Room(ctx); err != nil {
		return err
	}
	c.log.Append(c.changes)
	c.log.Offer()
	return nil
}

// decideAndMark decides a delta, and puts what it says of versions behind its changes. While the
// server's history has diverged that is nothing: no more of the known history comes, and what
// diverged from it is not decided yet.
func (c *controller) decideAndMark(ctx context.Context, d *deltafifo.Delta) error {
	m := c.mark(d)
	if err := c.decide(ctx, d); err != nil {
		return err
	}
	c.put(m)
	return nil
}

// mark is what a delta says of versions.
type mark struct {
	kind    changelog.MarkKind
	version resource.Version
	says    bool // else nothing
}

// mark is asked before the delta is decided.
func (c *controller) mark(d *deltafifo.Delta) (m mark) {
	m.kind, m.version, m.says = markOf(d)
	m.says = m.says && !c.diverged && (m.kind != changelog.ListEnd || !c.diverges(m.version))
	return m
}

func (c *controller) put(m mark) {
	if m.says {
		c.log.Mark(m.kind, m.version)
	}
}

// markOf is what a delta says of versions while the server's history is the one that is known.
func markOf(d *deltafifo.Delta) (kind changelog.MarkKind, version resource.Version, ok bool) {
	switch d.Type {
	case deltafifo.Bookmark:
		return changelog.Bookmark, d.Version, true
	case deltafifo.ReplaceEnd:
		return changelog.ListEnd, d.Version, !d.Relist.Partial() // else the stream continues from where it was
	case deltafifo.Added, deltafifo.Updated, deltafifo.Unselected, deltafifo.Deleted:
		if d.FinalStateUnknown || d.Listed {
			return 0, "", false // part of a list
		}
		return changelog.Event, d.Object.Version, true
	default:
		return 0, "", false
	}
}

// decide makes the changes of one delta.
func (c *controller) decide(ctx context.Context, d *deltafifo.Delta) error {
	switch d.Type {
	case deltafifo.Bookmark:
		if !d.Progress && !c.diverged {
			c.informer.unclean.Store(false)
			c.reportProgress(d.Version)
		}
		return nil
	case deltafifo.ReplaceBegin:
		return c.beginReplace(ctx, d)
	case deltafifo.ReplaceEnd:
		return c.endReplace(ctx, d)
	case deltafifo.Quarantined:
		return c.quarantined(d)
	default:
		return c.decideObject(d)
	}
}

// decideObject makes the changes of a delta of an object.
func (c *controller) decideObject(d *deltafifo.Delta) error {
	known, err := c.known(d)
	if err != nil {
		return err
	}
	return c.decideKnown(d, &known)
}

func (c *controller) decideKnown(d *deltafifo.Delta, known *Known) error {
	first, err := c.isFirstOfList(d)
	if err != nil {
		return err
	}
	c.account(d, known)
	c.list.Unclean = c.informer.unclean.Load()
	c.decisions = Decide(c.decisions[:0], d, known, &c.list)
	if len(c.decisions) == 0 && d.Object != nil && known.Found {
		c.informer.metrics.skipped.Inc()
	}
	if c.postponed && first {
		c.tellPostponed(d, known)
	}
	for i := range c.decisions {
		if err := c.carryOut(d, known, &c.decisions[i]); err != nil {
			return err
		}
	}
	clear(c.decisions)
	return nil
}

// known looks up what is known of the object of a delta.
func (c *controller) known(d *deltafifo.Delta) (k Known, err error) {
	if d.Key == "" {
		return k, nil
	}
	k.Record, k.Found, err = c.cfg.Indexer.Get(d.Key)
	k.Left = c.cfg.Indexer.Left(d.Key)
	k.Changed = d.Type == deltafifo.Sync && c.cfg.Indexer.ChangedSince(d.Key, d.After)
	k.Outside = c.cfg.Namespaces && !c.informer.scope.of(d.Key).State.Selected()
	return k, err
}

// carryOut makes a decision a change. A Synced whose exact state is not known makes none: an
// earlier one must not come behind the known one.
func (c *controller) carryOut(d *deltafifo.Delta, known *Known, dec *Decision) error {
	if err := c.findObjects(dec); err != nil {
		return err
	}
	switch obj := dec.Object; {
	case dec.Op == event.Synced && (obj == nil || obj.Version != dec.Version):
		return nil
	case dec.Op == event.Added:
		isUnknown := !known.Found && len(known.Left) == 0
		c.news = append(c.news, store.Announcement{
			Key: dec.Key, Object: obj, Seq: c.number + 1, Unknown: isUnknown,
		})
	case dec.Forget:
		namespace, _ := dec.Key.Split()
		c.informer.scope.leave(namespace)
	}
	if dec.GoneAsOf != "" {
		c.owe(dec)
	}
	c.attribute(dec, d, known)
	ch := c.newChange(dec.Change)
	ch.Written, ch.Told, ch.OfList, ch.Forget = dec.Written, dec.Told, dec.OfList, dec.Forget
	ch.For = changelog.Listeners(d.Listeners) // none for everyone
	c.emit(ch)
	return nil
}

// owe announces an inferred delete, with the version as of which its object is gone. If this run
// dies before the delete is settled, the next list is of a later version. The event then comes
// again as it was announced.
func (c *controller) owe(dec *Decision) {
	gone := c.cfg.Indexer.Owed(dec.Key, store.Gone{
		UID: dec.UID, Version: dec.Version, AsOf: dec.GoneAsOf, Epoch: c.epoch,
	})
	dec.Version, dec.Before, dec.GoneAsOf = gone.Version, gone.Version, gone.AsOf
	c.news = append(c.news, store.Announcement{Key: dec.Key, Gone: &gone, Seq: c.number + 1})
}

// findObjects looks up the objects of a decision that have not come with the delta: before the
// change becomes the newest state, so the old object is the version before. That holds also when a
// crash brings the change again: what is settled then is that version.
func (c *controller) findObjects(dec *Decision) (err error) {
	switch dec.Last {
	case FromState:
		dec.Object, err = c.cfg.Indexer.Object(dec.Key)
	case FromAnnouncement:
		dec.Object, err = c.cfg.Indexer.LeftObject(dec.Key, dec.UID)
	case FromDelta:
	}
	if err != nil || !c.informer.needsOld || dec.Op != event.Updated {
		return err
	}
	old, err := c.cfg.Indexer.Object(dec.Key)
	if err == nil && old != nil && old.Version == dec.Before {
		dec.Old = old
	}
	return err
}
