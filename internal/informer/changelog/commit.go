package changelog

import (
	"bytes"
	"runtime"
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// nextCommit is what the next commit writes beside states and the watermark, and what the last one
// has written.
type nextCommit struct {
	watermark resource.Version
	epoch     int  // of the last list that watermark has passed
	passed    bool // tombstones are left that watermark has passed
	listed    bool // the end of a list was passed by a commit that failed
	spooled   []store.LogEntry
	writes    []commitWrite // that wait for their place, or for the next commit
	bodies    []store.Body  // of objects whose bodies on disk are stale
}

// commitWrite is another write that goes with a commit.
type commitWrite struct {
	after Rank
	do    func(*store.Batch)
}

// AtCommit adds do to the first commit that includes all entries ranked so far, and again to the
// next one when a commit fails. do must not block, and may find nothing left to write.
func (l *Log) AtCommit(do func(*store.Batch)) {
	l.mu.Lock()
	l.writes = append(l.writes, commitWrite{l.marks.Last(), do})
	l.mu.Unlock()
	l.cfg.Committer.Changed()
}

// AtNextCommit is AtCommit for the next commit, whatever is settled.
func (l *Log) AtNextCommit(do func(*store.Batch)) {
	l.mu.Lock()
	l.writes = append(l.writes, commitWrite{0, do})
	l.mu.Unlock()
	l.cfg.Committer.Changed()
}

// RefreshBodies makes the next commit write bodies in place of stale ones, where their versions are
// still the committed ones.
func (l *Log) RefreshBodies(bodies []store.Body) {
	l.mu.Lock()
	l.bodies = append(l.bodies, bodies...)
	l.mu.Unlock()
	l.cfg.Committer.Changed()
}

// Commit makes durable what is settled now, of this log and all others.
func (l *Log) Commit() error { return l.cfg.Committer.Commit() }

// Checkpoint is what one commit writes for a log.
type Checkpoint struct {
	log          *Log
	states       map[resource.Key]store.NewState
	moved        bool          // the watermark, or its epoch
	cursorStates []cursorState // of the cursors; nil while nothing lies on disk
	saved        map[*Cursor][]byte
	// from and before are the positions to trim between, the same for nothing.
	from, before Position
	nextCommit
}

// Checkpoint takes everything that is to be committed. Committed follows, before the next call.
func (l *Log) Checkpoint() *Checkpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Checkpoint{log: l, nextCommit: l.nextCommit, states: l.states.Drain()}
	c.listed = l.marks.ListEnded() || l.listed
	l.spooled, l.bodies, l.listed = nil, nil, false
	writes := l.writes
	c.writes, l.writes = nil, nil
	for _, w := range writes {
		if w.after < l.marks.First() {
			c.writes = append(c.writes, w)
		} else {
			l.writes = append(l.writes, w)
		}
	}
	c.watermark = l.marks.Version()
	c.moved = c.watermark != l.watermark
	if l.cursorsCountLocked() {
		l.takeCursorsLocked(c)
	}
	return c
}

// cursorsCountLocked reports whether a restart needs the positions of the cursors: something lies
// on disk, or depends on a drop, or did so when the cursors were saved.
func (l *Log) cursorsCountLocked() bool {
	return l.disk.inUse() || slices.ContainsFunc(l.cursors, func(c *Cursor) bool {
		return c.savedDropped || !c.dropped.isEmpty()
	})
}

// takeCursorsLocked copies the cursors, and the range on disk that all have acked. Entries staged
// before are in this commit. Entries staged since would be written behind a trim of them.
func (l *Log) takeCursorsLocked(c *Checkpoint) {
	low := l.disk.next
	for _, cursor := range l.cursors {
		c.cursorStates = append(c.cursorStates, cursor.stateLocked())
		low = min(low, cursor.lowLocked())
	}
	low = max(low, l.drop.done) // what is below is with the cursors
	if from, before, ok := l.disk.trimTo(low); ok {
		c.from, c.before = from, before
	}
}

// Objects returns how many states the commit writes.
func (c *Checkpoint) Objects() int { return len(c.states) }

// statesAtOnce is how many states go into a batch before other goroutines may run. A state takes 10
// µs; on one processor, changes that come meanwhile wait.
const statesAtOnce = 16

// Write writes the checkpoint into a batch. The position comes first, as Batch requires.
func (c *Checkpoint) Write(batch *store.Batch) {
	ix := c.log.cfg.Indexer
	if c.listed { // the list of an epoch is settled by this commit
		epoch, err := ix.Meta().Epoch()
		batch.Fail(err)
		c.moved = c.moved || epoch.Number != c.epoch
		c.epoch = epoch.Number
	}
	switch {
	case c.moved:
		c.passed = batch.SetPosition(ix, c.watermark, c.epoch)
	case c.passed:
		c.passed = batch.DropPassed(ix, c.watermark)
	}
	batch.BuildIndexes(ix)
	for _, body := range c.bodies {
		batch.RefreshBody(ix, body)
	}
	written := 0
	for key, s := range c.states {
		if written++; written%statesAtOnce == 0 {
			runtime.Gosched()
		}
		batch.Settle(ix, key, s)
	}
	for _, e := range c.spooled {
		batch.AppendLog(ix, e)
	}
	for _, w := range c.writes {
		w.do(batch)
	}
	c.writeCursors(batch)
	if c.from < c.before {
		batch.TrimLog(ix, uint64(c.from), uint64(c.before))
	}
}

// writeCursors writes the cursors that have moved: a sink that is unavailable for hours must not
// cost a commit at every tick.
func (c *Checkpoint) writeCursors(batch *store.Batch) {
	c.saved = map[*Cursor][]byte{}
	for n := range c.cursorStates {
		cursor := c.log.cursors[n]
		now, err := c.cursorStates[n].encode()
		if batch.Fail(err); !bytes.Equal(now, cursor.saved) {
			batch.SetCursor(c.log.cfg.Indexer, cursor.name, now)
			c.saved[cursor] = now
		}
	}
}

// Committed records how the commit of a checkpoint has ended. What a failed commit did not write
// comes again, behind what was settled since.
func (l *Log) Committed(c *Checkpoint, err error) {
	if err == nil {
		l.cfg.Indexer.Forget(c.states) // the overlay
	}
	if dropped := l.committed(c, err); dropped {
		l.endDrop()
	}
}

// committed is Committed for the state in memory. It reports whether a drop has become durable.
func (l *Log) committed(c *Checkpoint, err error) (dropped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.states.PutBack(c.states)
		l.spooled = append(c.spooled, l.spooled...)
		l.bodies = append(c.bodies, l.bodies...)
		l.writes = append(c.writes, l.writes...)
		l.listed = c.listed
		return false
	}
	l.states.Committed(c.states)
	l.watermark, l.epoch, l.passed = c.watermark, c.epoch, c.passed
	for n := range c.cursorStates {
		l.cursors[n].savedDropped = !c.cursorStates[n].dropped.isEmpty()
	}
	for cursor, saved := range c.saved {
		cursor.saved = saved
	}
	if c.from < c.before {
		l.disk.trimmed(c.before)
		l.cond.Broadcast()
	}
	return l.droppedLocked()
}
