package informer

import (
	"cmp"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/store"
)

// newChange makes an entry of the delta that is being decided.
func (c *controller) newChange(ch event.Change) *changelog.Entry {
	ch.Observed = c.now
	return &changelog.Entry{Change: ch}
}

// state is what a decision leaves of its object.
func (d *Decision) state() store.Settled {
	s := store.Settled{Object: d.Object, Record: store.Record{
		UID: d.UID, Version: d.Version, Written: d.Written, EventTime: d.Time.UnixNano(),
	}}
	if d.Op == event.Deleted {
		s.Deleted, s.Object, s.Version = true, nil, cmp.Or(d.GoneAsOf, d.Version)
		if d.Forget {
			s.Version = "" // a tombstone would cover it
		}
	}
	return s
}

// object makes the event of a change of an object for one listener.
func (l *ListenerConfig) object(ch *event.Change) event.Event {
	if l.epochs > 0 {
		raised := *ch
		raised.Epoch += l.epochs
		ch = &raised
	}
	return l.Maker.Object(ch)
}

// event makes the event of an entry for one listener.
func (l *ListenerConfig) event(e *changelog.Entry) event.Event {
	m, era := l.Maker, e.Era
	era.Epoch += l.epochs
	switch e.Kind {
	case changelog.OfGap:
		return m.Gap(e.Relist, era, e.Observed)
	case changelog.OfListEnd:
		return m.Synced(e.Version, e.Listing, era, e.Observed)
	case changelog.OfDropped:
		return m.Dropped(e.Losses.Unread[l.Name], era, uint64(e.Position), e.Observed)
	case changelog.OfQuarantined:
		return m.Quarantined(e.Unreadable, era, e.Observed)
	case changelog.OfProgress:
		return m.Progress(e.Version, era, e.Observed)
	default:
		return l.object(&e.Change)
	}
}
