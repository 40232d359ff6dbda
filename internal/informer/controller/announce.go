package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// decidedBytes bounds the changes that wait for the rest of their batch. The FIFO counts the object
// of a delta, but not the old objects that are looked up for it.
const decidedBytes = 4 << 20

// fastCommit is how long changes wait for an announcement that they do not need. A commit takes
// longer on a disk that other programs use too: then changes of other objects pass it.
const fastCommit = 5 * time.Millisecond

// announcer hands changes to the log. A change that adds an object waits until its announcement is
// durable, and later changes of that object wait behind it. While the disk is fast, all changes are
// in the order of the stream. Else changes of other objects go first, and changes that come during
// one commit are announced by the next one.
type announcer struct {
	env     *Env
	log     *changelog.Log // of env
	writing sync.WaitGroup // write

	mu   sync.Mutex
	cond *sync.Cond // signalled when fewer changes are held, or err is set
	// now is being written, next is written after it; guarded by mu.
	now, next heldChanges
	busy      bool  // write runs
	err       error // of write, which has ended
}

// heldChanges are announcements and the changes that wait for them.
type heldChanges struct {
	news    []store.Announcement
	keys    map[resource.Key]struct{} // of news, and of changes that wait
	changes []*changelog.Entry
	bytes   int // of changes
}

func newAnnouncer(env *Env) *announcer {
	a := &announcer{env: env, log: env.Log}
	a.now.keys, a.next.keys = map[resource.Key]struct{}{}, map[resource.Key]struct{}{}
	a.cond = sync.NewCond(&a.mu)
	return a
}

func (h *heldChanges) hold(changes []*changelog.Entry, news []store.Announcement) {
	for i := range news {
		h.keys[news[i].Key] = struct{}{}
	}
	h.news, h.changes = append(h.news, news...), append(h.changes, changes...)
	for _, ch := range changes {
		h.bytes += ch.Size()
	}
}

func (h *heldChanges) reset() {
	clear(h.news)
	clear(h.keys)
	clear(h.changes)
	h.news, h.changes, h.bytes = h.news[:0], h.changes[:0], 0
}

// append hands over changes and keeps no reference to the slices. It blocks while the held changes
// take more than decidedBytes.
func (a *announcer) append(
	ctx context.Context, changes []*changelog.Entry, news []store.Announcement,
) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.busy && len(news) == 0 {
		a.log.Append(changes)
		return nil
	}
	a.next.hold(changes, news)
	if a.busy {
		a.passLocked(&a.next)
		return a.waitLocked(ctx, func() bool { return a.now.bytes+a.next.bytes <= decidedBytes })
	}
	a.beginLocked()
	a.writing.Go(func() { a.write(ctx) })
	fast, cancel := context.WithTimeout(ctx, fastCommit)
	defer cancel()
	err := a.waitLocked(fast, func() bool { return !a.busy })
	if err == nil || a.err != nil || ctx.Err() != nil {
		return err
	}
	a.passLocked(&a.now)
	return nil
}

// passLocked hands over the changes that wait for no announcement.
func (a *announcer) passLocked(h *heldChanges) {
	var free []*changelog.Entry
	waiting := h.changes[:0]
	for _, ch := range h.changes {
		_, now := a.now.keys[ch.Key]
		_, next := a.next.keys[ch.Key]
		if now || next {
			h.keys[ch.Key] = struct{}{} // it waits longer than the announcement, if that is the one before
			waiting = append(waiting, ch)
			continue
		}
		free = append(free, ch)
		h.bytes -= ch.Size()
	}
	clear(h.changes[len(waiting):])
	h.changes = waiting
	a.log.Append(free)
}

// isIdle reports whether nothing is held.
func (a *announcer) isIdle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.busy && a.err == nil
}

// wait waits until nothing is held.
func (a *announcer) wait(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waitLocked(ctx, func() bool { return !a.busy })
}

func (a *announcer) waitLocked(ctx context.Context, ready func() bool) error {
	err := ratelimit.WaitCond(ctx, a.cond, func() bool { return a.err != nil || ready() })
	if a.err != nil {
		return a.err
	}
	return err
}

// announce makes announcements durable before any listener is sent the Added. If the bridge dies
// before anything of an object is settled, and the object is deleted within a gap, the announcement
// alone shows that its delete has to be sent. announce waits while the disk refuses writes.
func (a *announcer) announce(ctx context.Context, news []store.Announcement) error {
	if len(news) == 0 {
		return nil
	}
	return store.RetryUntilWritten(ctx, a.env.Indexer, a.env.Logger, func() error {
		return a.env.Indexer.Announcements().Announce(news)
	})
}

// write announces the held changes and hands them over, until none is held.
func (a *announcer) write(ctx context.Context) {
	for more := true; more; {
		err := a.announce(ctx, a.now.news)
		if err == nil {
			err = a.log.Room(ctx)
		}
		more = a.end(err)
		a.log.Offer()
	}
}

// end hands over the changes of one commit, and reports whether there are more.
func (a *announcer) end(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.cond.Broadcast()
	if err != nil {
		a.err = err
		return false
	}
	a.log.Append(a.now.changes)
	a.now.reset()
	a.beginLocked()
	return a.busy
}

func (a *announcer) beginLocked() {
	a.now, a.next = a.next, a.now
	a.busy = len(a.now.changes) > 0
}

// batch is the decided changes that are not handed on yet.
type batch struct {
	decided []*changelog.Entry // of the delta that is being decided; they have no rank yet
	changes []*changelog.Entry
	bytes   int            // of changes
	listed  []resource.Key // objects that a list held
	news    []store.Announcement
}

func (b *batch) reset() {
	clear(b.changes)
	b.changes, b.listed, b.news, b.bytes = b.changes[:0], b.listed[:0], b.news[:0], 0
}

// handOn puts the batch into the log. A change that adds an object comes there when its
// announcement is durable. An entry about all objects comes after everything before it, and before
// everything after it.
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

// persist makes something durable that later steps depend on. It waits while the disk refuses
// writes.
func (c *Controller) persist(ctx context.Context, write func() error) error {
	return store.RetryUntilWritten(ctx, c.env.Indexer, c.env.Logger, write)
}

// spool puts on disk, and so settles, everything that was decided before this delta. The log has it
// all once the announcer holds nothing: a change that waits for an announcement has its rank, and
// is not appended. The wait may last until there is room in the log.
func (c *Controller) spool(ctx context.Context) error {
	if err := c.announcer.wait(ctx); err != nil {
		return err
	}
	return c.persist(ctx, func() error { return c.env.Log.Spool(ctx, time.Now()) })
}
