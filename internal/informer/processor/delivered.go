package processor

import (
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

// delivered is what the leader has delivered, as far as it is known at one moment.
type delivered struct {
	stand     standby.Stand
	history   standby.History
	selection resource.Version
}

func (l *Listener) delivered() (d delivered) {
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
func (d *delivered) has(h *changelog.Header) bool {
	change := changeOf(h, d.selection)
	return standby.Covers(&change, &d.stand, &d.history)
}

// undelivered acks those of entries that were read which the leader has delivered, and returns the
// others, in the same slice.
func (l *Listener) undelivered(entries []*changelog.Entry, d *delivered) []*changelog.Entry {
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
