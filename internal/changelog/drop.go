package changelog

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/store"
)

// A full log on disk that is to drop its oldest (DropOldest) loses whole stacks from its front, in
// one commit with a notice in the place of the last entry that went: whoever had not read these
// entries reads the notice next, and reports it. It is an entry of the log like any other, so it
// comes in its place, survives a restart, and is dropped itself, into the next notice, when it too
// becomes the oldest.
//
// Gaps stay where they are, the last of each reason: no number of events says that the server's
// history went back, or that a list follows.

// dropOldest makes room on disk. When it fails nothing was dropped.
func (l *Log) dropOldest(ctx context.Context) error {
	if err := l.spooling.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.spooling.Release(1)
	// What was staged has to be there, and what all have acked gone, before anything is counted as
	// lost.
	if err := l.cfg.Committer.Commit(); err != nil {
		return err
	}
	before, ok := l.beginDrop()
	if !ok {
		return nil
	}
	defer l.endDrop()
	d, err := l.planDrop(before)
	if err != nil {
		return err
	}
	if err := l.cut(d); err != nil {
		return err
	}
	l.report(&d.lost)
	return nil
}

// beginDrop finds what has to go. From here on nobody can read what will be counted; what lies
// there has left memory by then.
func (l *Log) beginDrop() (before Position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok = l.disk.oldest(); !ok {
		return 0, false
	}
	m := &l.memory
	m.leaveFront(func(e *Entry) bool { return e.Position < before })
	m.base = max(m.base, before)
	l.drops.before = before
	l.drops.count++
	l.changedLocked()
	return before, true
}

func (l *Log) endDrop() {
	l.mu.Lock()
	l.drops.before = 0
	l.cond.Broadcast()
	l.mu.Unlock()
	l.Offer()
}

// stands is where the cursors stand.
func (l *Log) stands() (stands []stand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.cursors {
		stands = append(stands, c.standLocked())
	}
	return stands
}

// cut drops what a drop was planned for, and writes the notice of it when somebody may lose
// something.
func (l *Log) cut(d *drop) error {
	if d.goes {
		if len(d.lost.Unread) > 0 || len(d.lost.Sent) > 0 {
			notice, err := l.notice(d.last, &d.lost)
			if err != nil {
				return err
			}
			d.stays = append(d.stays, notice)
		}
		if err := l.cfg.Indexer.CutLog(uint64(d.before), d.stays, d.cursors); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disk.cut(d.before, d.first())
	return nil
}

// notice is the entry that says what was lost.
func (l *Log) notice(at Position, lost *Losses) (store.LogEntry, error) {
	e := Entry{
		Change: event.Change{Op: event.Gap, Observed: time.Now()}, Kind: OfDropped, Losses: lost,
		For: l.everyone,
	}
	data, err := l.encode(&e)
	return store.LogEntry{Position: uint64(at), Data: data}, err
}

// report says what was lost, in the log and in metrics; sinks get a notice.
func (l *Log) report(lost *Losses) {
	for _, c := range l.cursors {
		n := lost.fresh[c.name]
		if n == 0 {
			continue
		}
		l.mu.Lock()
		c.dropped += n
		l.mu.Unlock()
		l.metrics.dropped.WithLabelValues(c.name, droppedSpoolFull).Add(float64(n))
		unread := lost.Unread[c.name]
		l.cfg.Log.Error("the log on disk is full: dropped the oldest that the sink has not had; "+
			"its stream will tell", "sink", c.name, "events", n, "untold", unread.Events, "from", unread.From, "to", unread.To)
	}
}
