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

// addEvents makes the events of entries, which are copies of one where of says so, and adds them to the
// publisher.
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

// upToLarge is how many entries have their events made together: those before the first large one,
// or that alone. To compare the versions of a large object takes milliseconds, for which no small
// change before it has to wait.
func upToLarge(entries []*changelog.Entry) int {
	isLarge := func(e *changelog.Entry) bool { return e.Size() > resource.LargeBytes }
	n := slices.IndexFunc(entries, isLarge)
	if n < 0 {
		return len(entries)
	}
	return max(n, 1)
}

// itemsOf makes the events of inflights, which are copies of one where of says so.
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

// exists reports, with the end of a list, whether an object exists; nil with any other entry, and
// where an item of the list could not be read, which may be any object that is not known.
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

// event makes the event of an entry.
func (l *Listener) event(e *changelog.Entry) event.Event {
	m, era := l.cfg.Maker, e.IDSuffix
	era.Epoch += l.epochs
	switch e.Kind {
	case changelog.OfGap:
		return m.Gap(e.Relist, era, e.Observed)
	case changelog.OfListEnd:
		return m.Synced(e.Version, e.Listing, era, e.Observed)
	case changelog.OfDropped:
		return m.Dropped(e.Loss, era, uint64(e.Position), e.Observed)
	case changelog.OfQuarantined:
		return m.Quarantined(e.Unreadable, era, e.Observed)
	case changelog.OfProgress:
		return m.Progress(e.Version, era, e.Observed)
	default:
		return l.objectEvent(&e.Change)
	}
}

// objectEvent makes the event of a change of an object.
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
	stand     standby.LeaderState
	history   standby.Seen
	selection resource.Version
}

func (l *Listener) delivered() (d leaderDelivery) {
	l.mu.Lock()
	d.stand = l.following.stand
	l.mu.Unlock()
	if l.cfg.Follows {
		d.history.From, d.history.Epoch, d.history.Complete = l.env.History()
		d.selection = l.selection()
	}
	return d
}

// has reports whether the leader has delivered an entry.
func (d *leaderDelivery) has(h *changelog.Header) bool {
	change := changeOf(h, d.selection)
	return standby.Covers(&change, &d.stand, &d.history)
}

// undelivered acks those of entries that were read which the leader has delivered, and returns the
// others, in the same slice.
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

// unsent is undelivered for a listener that sends: only where another replica has led before, and
// has reported something, there is anything to look for.
func (l *Listener) unsent(entries []*changelog.Entry) []*changelog.Entry {
	if !l.cfg.Follows {
		return entries
	}
	d := l.delivered()
	if d.stand.Progress.Delivered == "" {
		return entries
	}
	return l.undelivered(entries, &d)
}

// changeOf is what an entry says of versions.
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

// selection is the version of the last change of the selected namespaces; "" where none are
// selected.
func (l *Listener) selection() resource.Version {
	if l.env.Selection == nil {
		return ""
	}
	return l.env.Selection()
}

// A broker that is unavailable at the first start can't be asked whether it holds events of an
// earlier run. The list does not wait for it. In place of its gap stands an entry of the log for
// that sink alone, with Unasked. Nothing passes an event about the informer, so nothing reaches the
// broker before it was asked. Like any entry this one survives a crash.

// resolve asks for an entry with Unasked, and reports whether the entry is to be sent.
func (l *Listener) resolve(ctx context.Context, e *changelog.Entry) (send bool, err error) {
	if !e.AskBroker {
		return true, nil
	}
	holds, last, err := l.env.Holds(ctx, l.cfg.Name)
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

// raiseEpochs puts the events of this sink into an epoch behind last, the latest that its
// broker holds. The informer's own epoch stays: other sinks have events of it, and later entries of
// the log too. So the difference is added for this sink, on disk before any event has it. A run
// that died here has done so before: what it may have sent keeps its ids.
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
