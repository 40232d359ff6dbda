package changelog

import (
	"bytes"
	"cmp"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// uncommitted is what the next commit writes beside states and the watermark, and what the last one
// has written.
type uncommitted struct {
	committed resource.Version // the watermark
	passed    bool             // tombstones are left that committed has passed
	listed    bool             // the end of a list was passed by a commit that failed
	spooled   []store.LogEntry
	notes     []note       // that wait for their place, or for the next commit
	bodies    []store.Body // of objects that are behind
}

// note is something that is written with a commit.
type note struct {
	after Position // a place
	write func(*store.Batch)
}

// Note has something written in the first commit that has everything settled that was placed so
// far; and again in the one after where a commit fails. write must not block, and may find that
// there is nothing to write any more.
func (l *Log) Note(write func(*store.Batch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, note{l.watermark.Last(), write})
}

// NoteNext is Note for the next commit, whatever is settled.
func (l *Log) NoteNext(write func(*store.Batch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, note{0, write})
}

// CatchUp has bodies of objects that are behind written in the next commit, where their versions
// are still those that are committed.
func (l *Log) CatchUp(bodies []store.Body) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies = append(l.bodies, bodies...)
}

// Commit makes durable what is settled now, of this log and all others.
func (l *Log) Commit() error { return l.cfg.Committer.Commit() }

// Checkpoint is what one commit writes for a log.
type Checkpoint struct {
	log       *Log
	states    map[resource.Key]store.Settled
	watermark resource.Version // "" when it has not moved
	stands    []stand          // of the cursors; nil while nothing lies on disk
	saved     map[*Cursor][]byte
	// from and before are the positions to trim between, the same for nothing.
	from, before Position
	uncommitted
}

// Checkpoint takes what is to be committed. Committed follows, before the next call.
func (l *Log) Checkpoint() *Checkpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Checkpoint{log: l, uncommitted: l.uncommitted, states: l.states.Take()}
	c.listed = l.watermark.ListEnded() || l.listed
	l.spooled, l.bodies, l.listed = nil, nil, false
	notes := l.notes
	c.notes, l.notes = nil, nil
	for _, n := range notes {
		if n.after < l.watermark.First() {
			c.notes = append(c.notes, n)
		} else {
			l.notes = append(l.notes, n)
		}
	}
	if version := l.watermark.Version(); version != l.committed {
		c.watermark = version
	}
	if l.disk.inUse() {
		l.takeCursorsLocked(c)
	}
	return c
}

// takeCursorsLocked takes where the cursors stand, and what of the disk all have acked. What was
// staged is in this commit; what has been staged since would be written behind a trim of it.
func (l *Log) takeCursorsLocked(c *Checkpoint) {
	low := l.disk.next
	for _, cursor := range l.cursors {
		c.stands = append(c.stands, cursor.standLocked())
		low = min(low, cursor.lowLocked())
	}
	if from, before, ok := l.disk.trimTo(low); ok {
		c.from, c.before = from, before
	}
}

// Objects is how many states the commit writes.
func (c *Checkpoint) Objects() int { return len(c.states) }

// Write puts it into a batch. The position comes first, as Batch asks.
func (c *Checkpoint) Write(batch *store.Batch) {
	ix := c.log.cfg.Indexer
	switch {
	case c.watermark != "":
		c.passed = batch.SetPosition(ix, c.watermark)
	case c.passed:
		c.passed = batch.DropPassed(ix, c.committed)
	}
	if c.listed {
		batch.EndEpoch(ix)
	}
	for _, body := range c.bodies {
		batch.CatchUp(ix, body)
	}
	for key, s := range c.states {
		batch.Settle(ix, key, s)
	}
	for _, e := range c.spooled {
		batch.AppendLog(ix, e)
	}
	for _, n := range c.notes {
		n.write(batch)
	}
	c.writeCursors(batch)
	if c.from < c.before {
		batch.TrimLog(ix, uint64(c.from), uint64(c.before))
	}
}

// writeCursors writes those that have moved: a sink that is unavailable for hours must not cost a
// commit at every tick.
func (c *Checkpoint) writeCursors(batch *store.Batch) {
	c.saved = map[*Cursor][]byte{}
	for n := range c.stands {
		cursor, now := c.log.cursors[n], c.stands[n].encode()
		if !bytes.Equal(now, cursor.saved) {
			batch.SetCursor(c.log.cfg.Indexer, cursor.name, now)
			c.saved[cursor] = now
		}
	}
}

// Committed notes how the commit of a checkpoint has ended. What a failed one did not write comes
// again, behind what was settled since.
func (l *Log) Committed(c *Checkpoint, err error) {
	if err == nil {
		l.cfg.Indexer.Forget(c.states) // the overlay
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.states.PutBack(c.states)
		l.spooled = append(c.spooled, l.spooled...)
		l.bodies = append(c.bodies, l.bodies...)
		l.notes = append(c.notes, l.notes...)
		l.listed = c.listed
		return
	}
	l.states.Committed(c.states)
	l.committed, l.passed = cmp.Or(c.watermark, l.committed), c.passed
	for cursor, saved := range c.saved {
		cursor.saved = saved
	}
	if c.from < c.before {
		l.disk.trimmed(c.before)
		l.cond.Broadcast()
	}
}
