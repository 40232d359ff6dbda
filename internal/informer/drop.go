package informer

import (
	"context"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/store"
)

// A full log on disk that is to drop its oldest (DropOldest) loses whole stacks from its front, in one commit with a notice in the place of the
// last entry that went: whoever had not read these entries reads the notice next, and tells of it. It is an entry of the log like any
// other, so it comes in its place, survives a restart, and is dropped itself, into the next notice, when it too becomes the oldest.
//
// Gaps stay where they are, the last of each reason: that the server's history went back, or that a list follows, no number of events tells.

// dropOldest makes room in the log on disk. When it fails nothing was dropped.
func (i *Informer) dropOldest(ctx context.Context) error {
	select {
	case i.spoolTurn <- struct{}{}:
		defer func() { <-i.spoolTurn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// What was handed to disk has to be there, and what all have settled gone, before anything is counted as lost.
	if err := i.cfg.Tracker.Commit(); err != nil {
		return err
	}
	before, ok := i.disk.oldest()
	if !ok {
		return nil
	}
	if err := i.disk.takeTurns(ctx, cap(i.disk.turns)); err != nil {
		return err
	}
	defer i.disk.giveTurns(cap(i.disk.turns))
	i.log.forget(before) // from here on nobody can read what will be counted
	d, err := i.weigh(before)
	if err != nil {
		return err
	}
	if err := i.cut(d); err != nil {
		return err
	}
	i.tellLog(d.lost)
	return nil
}

// cut drops what a drop has weighed, and writes the notice of it when somebody may lose something.
func (i *Informer) cut(d *drop) error {
	if !d.goes {
		i.disk.cut(d.before, d.first())
		return nil
	}
	if len(d.lost.Unread) > 0 || len(d.lost.Sent) > 0 {
		notice, err := i.notice(d.last, d.lost)
		if err != nil {
			return err
		}
		d.stays = append(d.stays, notice)
	}
	err := i.cfg.Indexer.CutLog(d.before, d.stays, d.cursors)
	if err == nil {
		i.disk.cut(d.before, d.first())
	}
	return err
}

// notice is the entry that tells of losses.
func (i *Informer) notice(position uint64, lost losses) (store.LogEntry, error) {
	f := facts{Change: event.Change{Op: event.Gap, Observed: time.Now()}, Kind: ofDropped, Losses: &lost, position: position}
	data, err := i.encode(&f)
	return store.LogEntry{Position: position, Data: data}, err
}

// tellLog says what was lost, in the log and in metrics; sinks get a notice.
func (i *Informer) tellLog(lost losses) {
	for _, listener := range i.listeners {
		sink, n := listener.cfg.Name, lost.fresh[listener.cfg.Name]
		if n == 0 {
			continue
		}
		listener.dropped.Add(int64(n))
		i.metrics.dropped.WithLabelValues(sink, droppedSpoolFull).Add(float64(n))
		l := lost.Unread[sink]
		i.logger.Error("the log on disk is full: dropped the oldest that the sink has not had; its stream will tell",
			"sink", sink, "events", n, "untold", l.Events, "from", l.From, "to", l.To)
	}
}
