package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/checkpoint"
	"github.com/kubebridge/bridge/internal/store"
)

// errDiskFull is logged while a full disk budget, or a disk that is nearly full, holds the reading back.
var errDiskFull = errors.New("there is no room left for the log on disk")

// makeRoom waits until commits can be made, since what can't be committed stays in memory, and until there is room in the log's. While
// sinks keep up that is soon; when what waits is old it goes to disk, and from then on whatever does not fit follows at once.
func (i *Informer) makeRoom(ctx context.Context) error {
	if err := i.cfg.Indexer.WaitAvailable(ctx); err != nil {
		return err
	}
	for i.log.full() {
		if i.spilling() {
			i.spoolOrWait(ctx, time.Now())
		} else if err := i.log.waitRoom(ctx, i.spilling); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// spilling says whether what does not fit may go to disk at once.
func (i *Informer) spilling() bool {
	inUse, full := i.disk.inUse()
	return inUse && (!full || i.cfg.DropOldest) && i.cfg.Indexer.Room()
}

// blocked says whether nothing more may go to disk. A disk that is nearly full is no reason to drop anything: what fills it may be others'.
func (i *Informer) blocked() bool {
	_, full := i.disk.inUse()
	return full && !i.cfg.DropOldest || !i.cfg.Indexer.Room()
}

// spoolOrWait spools; when that fails it says so and waits a moment, since nothing may be dropped.
func (i *Informer) spoolOrWait(ctx context.Context, by time.Time) {
	err := i.roomOnDisk(ctx)
	if err == nil {
		err = i.spool(ctx, by)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if !errors.Is(err, store.ErrUnavailable) { // of which the database tells, once
		i.logger.Error("changes can't be written to the log on disk; reading waits", "err", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// roomOnDisk drops the oldest from a full log on disk, where that is asked for.
func (i *Informer) roomOnDisk(ctx context.Context) error {
	if inUse, full := i.disk.inUse(); inUse && full && i.cfg.DropOldest {
		return i.dropOldest(ctx)
	}
	return nil
}

// watchAge spools what waits for longer than it may, so that the watermark goes on while a sink is away, and a restart finds
// everything on disk.
func (i *Informer) watchAge(ctx context.Context) error {
	if i.disk.off() {
		return nil
	}
	tick := time.NewTicker(min(i.cfg.SpoolAfter/4, time.Second))
	defer tick.Stop()
	told := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		tooOld := time.Now().Add(-i.cfg.SpoolAfter)
		if oldest := i.log.oldest(); oldest.IsZero() || oldest.After(tooOld) {
			continue
		}
		if i.blocked() {
			if !told {
				i.logger.Error("reading stops until a sink has taken something", "err", errDiskFull, "bytes", i.disk.size())
			}
			told = true
			continue
		}
		told = false
		i.spoolOrWait(ctx, tooOld)
	}
}

// spool writes what is neither settled nor on disk, and was observed by a time, to the log there, with the settled states it leaves
// behind, in one commit; then it lets memory go. For the tracker these changes are settled; for the listeners they are not.
func (i *Informer) spool(ctx context.Context, by time.Time) error {
	select {
	case i.spoolTurn <- struct{}{}:
		defer func() { <-i.spoolTurn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := i.handAllToDisk(by); err != nil {
		return err
	}
	if err := i.cfg.Tracker.Commit(); err != nil {
		return err
	}
	i.log.giveWay()
	return nil
}

// handAllToDisk gives the tracker what is neither settled nor on disk, and was observed by a time.
func (i *Informer) handAllToDisk(by time.Time) error {
	work := i.log.unspooled(by)
	encoded := make([][]byte, len(work))
	for n := range work {
		var err error
		if encoded[n], err = i.encode(&work[n].facts); err != nil {
			return err
		}
	}
	i.handToDisk(work, encoded)
	return nil
}

// handToDisk gives the tracker those that were not settled meanwhile.
func (i *Informer) handToDisk(work []pending, encoded [][]byte) {
	i.settling.Lock()
	defer i.settling.Unlock()
	var spooled []checkpoint.Spooled
	var entries []store.LogEntry
	var changes []*change
	for n := range work {
		c, f := work[n].change, &work[n].facts
		if c.waiting.Load() == 0 {
			continue
		}
		c.spooled.Store(true)
		s := checkpoint.Spooled{
			Position: f.place, Entry: store.LogEntry{Position: f.position, Data: encoded[n]},
			Key: f.stateKey(), State: f.settled(),
		}
		spooled = append(spooled, s)
		entries = append(entries, s.Entry)
		changes = append(changes, c)
	}
	if len(spooled) == 0 {
		return
	}
	i.disk.added(entries)
	i.cfg.Tracker.Spool(spooled)
	for _, c := range changes {
		c.letGo() // the cursors of those who have settled it say so
	}
}

// Write puts the listeners' cursors into a commit while something lies on disk, and drops there what all have settled. Cursors that stand
// where they stood are not written again: a sink that is away for hours must not cost a commit at every tick. entries are those that the commit writes.
func (i *Informer) Write(batch *store.Batch, entries []store.LogEntry) (committed func()) {
	inUse, _ := i.disk.inUse()
	if !inUse {
		return nil
	}
	low := ^uint64(0)
	moved := map[*listener][]byte{}
	for _, l := range i.listeners {
		c := l.stand()
		low = min(low, c.low())
		if now := c.encode(); !bytes.Equal(now, l.saved) {
			batch.SetCursor(i.cfg.Indexer, l.cfg.Name, now)
			moved[l] = now
		}
	}
	from, before, trim := i.disk.trimTo(min(low, i.disk.writtenWith(entries)))
	if trim {
		batch.TrimLog(i.cfg.Indexer, from, before)
	}
	return func() {
		for l, now := range moved {
			l.saved = now
		}
		i.disk.wrote(entries)
		if trim {
			i.disk.trimmed(before)
			i.log.wake()
		}
	}
}

// restore gives the listeners the places they had, when a run before has left something on disk.
func (i *Informer) restore() error {
	cursors, err := i.cfg.Indexer.Cursors()
	if err != nil {
		return err
	}
	stands := map[string]cursor{}
	for name, saved := range cursors {
		c, err := decodeCursor(saved)
		if err != nil {
			return fmt.Errorf("cursor: %w", err)
		}
		stands[name] = c
		// New changes come behind every place that a listener may have.
		i.disk.next = max(i.disk.next, c.next)
	}
	if err := i.restoreLosses(stands); err != nil {
		return err
	}
	for _, l := range i.listeners {
		l.cursor.next = i.disk.next // a new listener has nothing to catch up on
		if c, ok := stands[l.cfg.Name]; ok {
			l.cursor = c
		}
	}
	return nil
}
