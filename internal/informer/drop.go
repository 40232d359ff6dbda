package informer

import (
	"context"
	"maps"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/store"
)

// A full log on disk that is to drop its oldest (DropOldest) loses whole stacks from its front, in one commit with a notice in the place of the
// last entry that went: whoever had not read these entries reads the notice next, and tells of it. It is an entry of the log like any
// other, so it comes in its place, survives a restart, and is dropped itself, into the next notice, when it too becomes the oldest.

// losses are what a notice tells, by sink.
type losses struct {
	// Unread is what the sink's listener had not read.
	Unread map[string]event.Loss `json:"unread,omitempty"`
	// Sent is what it had passed on to its publisher: lost only when the process ends before that was acknowledged.
	Sent map[string]event.Loss `json:"sent,omitempty"`
	// fresh is how much of Unread no earlier notice tells.
	fresh map[string]int
}

func newLosses() losses {
	return losses{Unread: map[string]event.Loss{}, Sent: map[string]event.Loss{}, fresh: map[string]int{}}
}

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
	lost, cursors, err := i.lossBefore(before)
	if err != nil {
		return err
	}
	if err := i.cut(before, lost, cursors); err != nil {
		return err
	}
	i.tellLog(lost)
	return nil
}

// lossBefore says what each listener loses when everything before a position is dropped, and where it stands.
func (i *Informer) lossBefore(before uint64) (losses, map[string][]byte, error) {
	lost, cursors := newLosses(), map[string][]byte{}
	stands := make([]cursor, len(i.listeners))
	for n, l := range i.listeners {
		stands[n] = l.stand()
		cursors[l.cfg.Name] = stands[n].encode()
	}
	for e, err := range i.cfg.Indexer.Log(0, before) {
		if err != nil {
			return lost, nil, err
		}
		r, _, err := decodeHeader(e.Position, e.Data)
		if err != nil {
			return lost, nil, err
		}
		for n, l := range i.listeners {
			lost.add(l, &stands[n], e.Position, &r, i.audience(r.For))
		}
	}
	return lost, cursors, nil
}

// add counts an entry as lost for a listener that had not settled it.
func (ls *losses) add(l *listener, stand *cursor, position uint64, r *record, audience uint64) {
	name, pending := l.cfg.Name, stand.has(position)
	unread := position >= stand.next
	if r.Losses != nil {
		ls.carry(name, stand.below(position) > 0, pending, unread, r.Losses)
		return
	}
	one := event.Loss{Events: 1, From: r.Version, To: r.Version}
	switch {
	case audience&l.bit == 0:
	case pending:
		merge(ls.Sent, name, one)
	case unread:
		merge(ls.Unread, name, one)
		ls.fresh[name]++
	}
}

// carry takes over what an earlier notice tells, as far as the listener still depends on it.
func (ls *losses) carry(name string, sent, telling, unread bool, earlier *losses) {
	if sent {
		merge(ls.Sent, name, earlier.Sent[name])
	}
	switch {
	case telling:
		merge(ls.Sent, name, earlier.Unread[name])
	case unread:
		merge(ls.Unread, name, earlier.Unread[name])
	}
}

// merge adds a loss to what one sink has lost so far.
func merge(into map[string]event.Loss, name string, l event.Loss) {
	if l.Events > 0 {
		into[name] = into[name].And(l)
	}
}

// cut drops what is before a position, and writes the notice of it when somebody may lose something.
func (i *Informer) cut(before uint64, lost losses, cursors map[string][]byte) error {
	if len(lost.Unread) == 0 && len(lost.Sent) == 0 {
		err := i.cfg.Indexer.CutLog(before, nil, cursors)
		if err == nil {
			i.disk.cut(before, false)
		}
		return err
	}
	notice, err := i.notice(before-1, lost)
	if err != nil {
		return err
	}
	if err := i.cfg.Indexer.CutLog(before, &notice, cursors); err != nil {
		return err
	}
	i.disk.cut(before, true)
	return nil
}

// notice is the entry that tells of losses.
func (i *Informer) notice(position uint64, lost losses) (store.LogEntry, error) {
	f := facts{Change: event.Change{Op: event.Gap, Observed: time.Now()}, kind: ofDropped, losses: &lost, position: position}
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

// restoreLosses finds what a run before had dropped while it was with a publisher: whether that was sent nobody knows, so it counts as
// lost. cursors are those that were saved; what is gone is taken out of them.
func (i *Informer) restoreLosses(cursors map[string]cursor) error {
	earlier, position, err := i.firstNotice()
	if err != nil || earlier == nil {
		return err
	}
	lost := newLosses()
	maps.Copy(lost.Unread, earlier.Unread)
	changed := map[string][]byte{}
	for name, l := range earlier.Sent {
		c, known := cursors[name]
		if !known || c.below(position) == 0 {
			continue
		}
		merge(lost.Unread, name, l)
		lost.fresh[name] = l.Events
		cursors[name] = c.backTo(position)
		changed[name] = cursors[name].encode()
	}
	if len(changed) == 0 {
		return nil
	}
	notice, err := i.notice(position, lost)
	if err != nil {
		return err
	}
	if err := i.cfg.Indexer.CutLog(position+1, &notice, changed); err != nil {
		return err
	}
	i.tellLog(lost)
	return nil
}

// firstNotice is what the notice at the front of the log on disk tells; nil when there is none.
func (i *Informer) firstNotice() (*losses, uint64, error) {
	first, next, err := i.cfg.Indexer.LogBounds()
	if err != nil {
		return nil, 0, err
	}
	for e, err := range i.cfg.Indexer.Log(first, min(first+1, next)) {
		if err != nil {
			return nil, 0, err
		}
		r, _, err := decodeHeader(e.Position, e.Data)
		return r.Losses, e.Position, err
	}
	return nil, 0, nil
}

// listeners are those that a notice is for.
func (ls *losses) listeners(i *Informer) uint64 {
	var audience uint64
	for _, l := range i.listeners {
		if ls.Unread[l.cfg.Name].Events > 0 {
			audience |= l.bit
		}
	}
	return audience
}
