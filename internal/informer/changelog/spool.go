package changelog

import (
	"context"
	"errors"
	"time"

	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// oldestUnspooled returns when the first entry was observed that is neither settled nor on disk;
// zero when there is none.
func (l *Log) oldestUnspooled() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.memory.unspooled(); e != nil {
		return e.Observed
	}
	return time.Time{}
}

// Room waits until commits can be made, since uncommitted entries stay in memory, and until there
// is room in memory. While the sinks keep up that is soon. When the backlog is old it goes to disk,
// and from then on everything that does not fit in memory goes there at once.
func (l *Log) Room(ctx context.Context) error {
	if err := l.cfg.Indexer.Log().WaitAvailable(ctx); err != nil {
		return err
	}
	for l.full() {
		l.lookAtDisk()
		if l.spilling() {
			l.spoolOrWait(ctx, time.Now())
		} else {
			l.waitRoom(ctx, l.spillingLocked)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// spillingLocked reports whether entries that do not fit in memory may go to disk at once.
func (l *Log) spillingLocked() bool {
	return l.disk.inUse() && (!l.disk.full() || l.cfg.DropOldest) &&
		l.cfg.Indexer.Log().Room(l.disk.bytes)
}

func (l *Log) spilling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spillingLocked()
}

// blocked reports whether nothing more may go to disk. A disk that is nearly full is no reason to
// drop anything: other programs may fill it.
func (l *Log) blocked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.disk.full() && !l.cfg.DropOldest || !l.cfg.Indexer.Log().Room(l.disk.bytes)
}

// lookAtDisk checks again a disk that had no space, and does nothing where it had. Call it while
// waiting for space: nothing may be committed meanwhile, and then nobody else checks.
func (l *Log) lookAtDisk() {
	l.mu.Lock()
	used := l.disk.bytes
	l.mu.Unlock()
	l.cfg.Indexer.Log().Look(used)
}

// spoolOrWait spools. When that fails it waits a moment, since nothing may be dropped.
func (l *Log) spoolOrWait(ctx context.Context, by time.Time) {
	err := l.spool(ctx, by, l.stageOrDrop)
	if err == nil || ctx.Err() != nil {
		return
	}
	l.reportSpooling(err)
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

func (l *Log) reportSpooling(err error) {
	if err != nil && !errors.Is(err, statedb.ErrUnavailable) { // which the database reports, once
		l.cfg.Log.Error("changes can't be written to the log on disk; reading waits", "err", err)
	}
}

func (l *Log) diskFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.disk.inUse() && l.disk.full()
}

// Spool writes to disk, in one commit, the entries that are neither settled nor on disk and were
// observed by a time, with the states that they leave. Then it removes half of a full memory. These
// entries are settled; the listeners still have to ack them.
func (l *Log) Spool(ctx context.Context, by time.Time) error { return l.spool(ctx, by, l.stage) }

func (l *Log) spool(
	ctx context.Context, by time.Time, stage func(by time.Time) (bytes int, err error),
) error {
	if err := l.spooling.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.spooling.Release(1)
	if _, err := stage(by); err != nil {
		return err
	}
	if err := l.cfg.Committer.Commit(); err != nil {
		return err
	}
	l.halve()
	return nil
}

// halve removes half of a full memory, after a commit.
func (l *Log) halve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.leaveFront(func(*Entry) bool { return l.memory.bytes > l.boundLocked()/2 })
	l.changedLocked()
}

// stageOrDrop is stage. With DropOldest it makes room on disk first. The caller holds l.spooling.
func (l *Log) stageOrDrop(by time.Time) (bytes int, err error) {
	if l.cfg.DropOldest && l.diskFull() {
		if err := l.dropOldest(); err != nil {
			return 0, err
		}
	}
	return l.stage(by)
}

// stagedEntry is an entry that the next commit writes to disk. It holds a copy, because the log
// empties an entry once all listeners have acked it.
type stagedEntry struct {
	entry *Entry
	copy  Entry
	data  []byte
}

// Stage makes the next commit write to disk the entries that are neither settled nor there and were
// observed by a time. An entry of that very time counts: a caller that spools everything passes the
// present, and a clock may show the same time twice. All entries before such an entry go too, even
// younger ones, so that the disk holds a prefix of the log without a hole. The caller holds
// l.spooling, or the Spooler is done with the log.
func (l *Log) Stage(by time.Time) error {
	_, err := l.stage(by)
	return err
}

// stage is Stage, and returns the size of the entries that it has staged.
func (l *Log) stage(by time.Time) (bytes int, err error) {
	work := l.unspooled(by)
	for n := range work {
		if work[n].data, err = l.encode(&work[n].copy); err != nil {
			return 0, err
		}
		bytes += len(work[n].data)
	}
	release(l.settleStaged(work))
	l.cfg.Committer.Changed()
	return bytes, nil
}

func (l *Log) unspooled(by time.Time) (work []stagedEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.memory.entries)
	for ; n > 0; n-- {
		if e := l.memory.entries[n-1]; e.size > 0 && !e.Observed.After(by) {
			break
		}
	}
	for _, e := range l.memory.entries[:n] {
		if e.size > 0 && !e.spooled {
			work = append(work, stagedEntry{entry: e, copy: *e})
		}
	}
	return work
}

// settleStaged settles the staged entries that were not settled meanwhile. The cursors have the
// acks of listeners that are done with them, so the holds are released.
func (l *Log) settleStaged(work []stagedEntry) (holds []Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var entries []store.LogEntry
	for n := range work {
		e := work[n].entry
		if e.size == 0 {
			continue
		}
		e.spooled = true
		l.settleLocked(e)
		entries = append(entries, store.LogEntry{Position: uint64(e.Position), Data: work[n].data})
		holds = append(holds, e.holds...)
		e.holds = nil
	}
	if len(entries) > 0 {
		l.disk.added(entries)
		l.spooled = append(l.spooled, entries...)
	}
	return holds
}
