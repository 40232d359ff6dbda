package processor

import (
	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
)

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
