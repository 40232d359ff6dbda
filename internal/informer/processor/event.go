package processor

import (
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
)

// add makes the events of entries, which are copies of one where of says so, and adds them to the
// publisher.
func (l *Listener) add(ctx context.Context, entries []*changelog.Entry, of *copies) error {
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
func (l *Listener) itemsOf(inflights []*inflight, of *copies) []*publisher.Item {
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
	m, era := l.cfg.Maker, e.Era
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
