package processor

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
)

// addEvents makes the events of entries and adds them to the publisher. With of, the entries are
// one entry, repeated for its copies.
func (l *Listener) addEvents(ctx context.Context, entries []*changelog.Entry, of *eventCopies) error {
	for len(entries) > 0 {
		next := entries
		if of == nil {
			next = entries[:upToLarge(entries)]
		}
		inflights, err := l.acquire(ctx, next)
		if err != nil {
			return err
		}
		entries = entries[len(inflights):]
		if err := l.cfg.Publisher.Add(ctx, l.itemsOf(inflights, of)); err != nil {
			return err
		}
	}
	return nil
}

// upToLarge returns how many entries have their events made together: those before the first large
// one, or the large one alone. Comparing the versions of a large object takes milliseconds, and no
// small change before it has to wait for that.
func upToLarge(entries []*changelog.Entry) int {
	isLarge := func(e *changelog.Entry) bool { return e.Size() > resource.LargeBytes }
	n := slices.IndexFunc(entries, isLarge)
	if n < 0 {
		return len(entries)
	}
	return max(n, 1)
}

// itemsOf makes the events of inflights, which are copies of one where of is given.
func (l *Listener) itemsOf(inflights []*inflightEvent, of *eventCopies) []*publisher.Item {
	items := make([]*publisher.Item, 0, len(inflights))
	for i, p := range inflights {
		p.event = l.event(p.entry)
		if p.copies = of; of != nil {
			p.event = p.event.Copy(i)
		}
		p.item.Message = sinks.Message{Event: &p.event, Exists: l.exists(p.entry)}
		items = append(items, &p.item)
	}
	return items
}

// exists returns, for the end of a list, a function that reports whether an object exists. It
// returns nil for any other entry, and where an item of the list could not be read: that item may
// be any unknown object.
func (l *Listener) exists(e *changelog.Entry) func(namespace, name string) (bool, error) {
	if e.Kind != changelog.OfListEnd || e.Listing.Unreadable > 0 {
		return nil
	}
	return func(namespace, name string) (bool, error) {
		if !l.env.Shard.Has(l.env.Type, namespace, name) {
			return true, nil // as far as this replica knows
		}
		record, found, err := l.env.Indexer.Get(resource.MakeKey(namespace, name))
		return found && !record.Deleted, err
	}
}

func (l *Listener) event(e *changelog.Entry) event.Event {
	m, era := l.cfg.Maker, e.IDSuffix
	era.Epoch += l.epochs
	switch e.Kind {
	case changelog.OfGap:
		return m.Gap(e.Relist, e.NotBefore, era, e.Observed)
	case changelog.OfListEnd:
		return m.Synced(e.Version, e.Listing, era, e.Observed)
	case changelog.OfDropped:
		return m.Dropped(e.Loss, era, uint64(e.Position), e.Observed)
	case changelog.OfQuarantined:
		return m.Quarantined(e.Unreadable, era, e.Observed)
	case changelog.OfProgress:
		return m.Progress(e.Version, event.Unwatched{From: e.Before, Since: e.NotBefore, Until: e.Time}, era, e.Observed)
	default:
		return l.objectEvent(&e.Change)
	}
}

func (l *Listener) objectEvent(ch *event.Change) event.Event {
	if l.epochs > 0 {
		raised := *ch
		raised.Epoch += l.epochs
		ch = &raised
	}
	return l.cfg.Maker.Object(ch)
}

// leaderDelivery is what the leader has delivered, as far as it is known at one moment.
type leaderDelivery struct {
	standing  standby.LeaderState
	seen      standby.Seen
	selection resource.Version
}

func (l *Listener) delivered() (d leaderDelivery) {
	l.mu.Lock()
	d.standing = l.leader.standing
	l.mu.Unlock()
	if l.cfg.Follows {
		d.seen.From, d.seen.Epoch, d.seen.Complete = l.env.SeenSince()
		d.selection = l.selection()
	}
	return d
}

// has reports whether the leader has delivered an entry.
func (d *leaderDelivery) has(h *changelog.Header) bool {
	change := changeOf(h, d.selection)
	return standby.Covers(&change, &d.standing, &d.seen)
}

// undelivered acks the entries that the leader has delivered, and returns the others in the same
// slice.
func (l *Listener) undelivered(entries []*changelog.Entry, d *leaderDelivery) []*changelog.Entry {
	if !l.cfg.Follows || len(entries) == 0 {
		return entries
	}
	var acks []changelog.Ack
	entries = slices.DeleteFunc(entries, func(e *changelog.Entry) bool {
		h := e.Header()
		has := d.has(&h)
		if has {
			acks = append(acks, changelog.Ack{At: h.Position})
		}
		return has
	})
	if len(acks) > 0 {
		l.cursor.Ack(acks)
	}
	return entries
}

// unsent is undelivered for a listener that sends. There is nothing to find unless another replica
// has led before and has reported its progress.
func (l *Listener) unsent(entries []*changelog.Entry) []*changelog.Entry {
	if !l.cfg.Follows {
		return entries
	}
	d := l.delivered()
	if d.standing.Progress.Delivered == "" {
		return entries
	}
	return l.undelivered(entries, &d)
}

// changeOf returns what an entry says of versions: that of the delta. An inferred delete has the
// version of the object's last state, which may have been delivered long ago.
func changeOf(h *changelog.Header, selection resource.Version) standby.Change {
	c := standby.Change{Version: h.DeltaVersion, Epoch: h.Epoch, OfList: h.OfList, Selection: selection}
	switch h.Kind {
	case changelog.OfGap: // a list follows
		c.OfList = true
	case changelog.OfQuarantined:
		c.OfList, c.Key = h.DeltaVersion == "", h.Key // else no list follows
	case changelog.OfObject:
		c.Repeats, c.Key = h.Op == event.Synced, h.Key
	case changelog.OfListEnd, changelog.OfDropped, changelog.OfProgress:
	}
	return c
}

// selection returns the version of the last change of the selected namespaces; "" where none are
// selected.
func (l *Listener) selection() resource.Version {
	if l.env.Selection == nil {
		return ""
	}
	return l.env.Selection()
}

// resolve asks the broker for an entry with AskBroker, and reports whether the entry is to be sent.
//
// A broker that is unavailable at the first start can't be asked whether it holds events of an
// earlier run. The list does not wait for it: in place of its gap the log has an entry for that
// sink alone. No other entry passes that one, so nothing reaches the broker before it was asked.
// Like any entry this one survives a crash.
func (l *Listener) resolve(ctx context.Context, e *changelog.Entry) (send bool, err error) {
	if !e.AskBroker {
		return true, nil
	}
	holds, last, err := l.env.HoldsEarlierRun(ctx, l.cfg.Name)
	if err != nil {
		return false, err
	}
	if !holds {
		l.cursor.Ack([]changelog.Ack{{At: e.Position}})
		return false, nil
	}
	l.env.Logger.Warn("the state of an earlier run is gone, and the broker, which was unavailable "+
		"before, holds events of it: everything is sent, and what was deleted since can't be known",
		"sink", l.cfg.Name)
	return true, l.raiseEpochs(ctx, e.Epoch, last)
}

// raiseEpochs puts the events of this sink into an epoch after last, the latest of the broker's
// events. The informer's own epoch stays: other sinks have events of it, and so have later entries
// of the log. So the difference is added for this sink, on disk before any event has it. Where a
// run died here before, the difference is on disk already: its events keep their ids.
func (l *Listener) raiseEpochs(ctx context.Context, epoch, last int) error {
	own := epoch + l.epochs
	if own > last || own == last && l.epochs > 0 {
		return nil
	}
	more := last + 1 - epoch
	err := store.RetryUntilWritten(ctx, l.env.Indexer, l.env.Logger, func() error {
		return l.env.Indexer.Meta().SetSinkEpochs(l.cfg.Name, more)
	})
	if err == nil {
		l.epochs = more
	}
	return err
}
