package informer

import "github.com/kubebridge/bridge/internal/event"

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

// add counts an entry as lost for a listener that had not settled it. gaps are the positions of those before it.
func (ls *losses) add(l *listener, stand *cursor, position uint64, r *record, audience uint64, gaps []uint64) {
	name, pending := l.cfg.Name, stand.has(position)
	unread := position >= stand.next
	if r.Losses != nil {
		notified := r.Losses.Unread[name].Events > 0
		ls.carry(name, stand.owes(position, gaps, notified), notified && pending, unread, r.Losses)
		return
	}
	switch {
	case audience&l.bit == 0:
	case pending:
		merge(ls.Sent, name, r.loss())
	case unread:
		merge(ls.Unread, name, r.loss())
		ls.fresh[name]++
	}
}

// loss is what a stream lacks without the entry: of one about a list, what that stands for.
func (r *record) loss() event.Loss {
	switch {
	case r.Kind == ofGap:
		return event.Between(r.Relist.From, r.Relist.To)
	case r.Kind == ofSynced:
		return event.Between(r.Since, r.Version)
	case r.Kind == ofProgress:
		return event.Loss{From: r.Version, To: r.Version} // of no change
	case r.Unreadable != nil:
		return event.Loss{Events: 1, From: r.Unreadable.Version, To: r.Unreadable.Version}
	default: // what a list found to be gone went somewhere in between
		return event.Loss{Events: 1, From: r.Version, To: r.Version}.And(event.Loss{From: r.Told, To: r.Told})
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
