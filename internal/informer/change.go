package informer

import (
	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
)

// newChange makes an entry of the delta that is being decided.
func (c *controller) newChange(ch event.Change) *changelog.Entry {
	ch.Observed = c.now
	return &changelog.Entry{Change: ch}
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
