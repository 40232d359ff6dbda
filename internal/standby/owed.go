package standby

import (
	"slices"

	"github.com/kubebridge/bridge/internal/publisher"
)

// owes reports whether a delete is one that no leader knew of, though a leader may have delivered
// later ones: only the replica that holds the delete can send it.
func (p *Unit) owes(c *publisher.Cover) bool {
	return c.Deletes && p.MissedTo != "" && c.Epoch == p.Epoch && c.Version.NotNewer(p.MissedTo) &&
		(p.MissedFrom == "" || !c.Version.NotNewer(p.MissedFrom))
}

// Owed is how many items are held that only this replica can send: ends of objects of which the
// leader did not know, and that are nothing new to the stream once it has passed them.
func (r *Relay) Owed() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owedLocked(r.held))
}

// stillOwed settles the ends of objects that exist again, where the leader before has sent the new
// one: the end of the one before would come behind it. It gives the other items.
func (r *Relay) stillOwed(items []*publisher.Item) []*publisher.Item {
	owed := r.owedOf(items)
	if len(owed) == 0 || r.cfg.Exists == nil {
		return items
	}
	owed = slices.DeleteFunc(owed, func(it *publisher.Item) bool { return !r.cfg.Exists(it) })
	rest := slices.DeleteFunc(slices.Clone(items),
		func(it *publisher.Item) bool { return slices.Contains(owed, it) })
	settle(owed)
	return rest
}

// owedOf gives those of items that are owed.
func (r *Relay) owedOf(items []*publisher.Item) []*publisher.Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owedLocked(items)
}

func (r *Relay) owedLocked(items []*publisher.Item) (owed []*publisher.Item) {
	if r.progress.MissedTo == "" {
		return nil
	}
	for _, it := range items {
		if r.progress.owes(&it.Cover) && it.Cover.Version.NotNewer(r.progress.Delivered) {
			owed = append(owed, it)
		}
	}
	return owed
}
