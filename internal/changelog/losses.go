package changelog

import "github.com/kubebridge/bridge/internal/event"

// Losses are what a notice says, by sink.
type Losses struct {
	// Unread is what the sink's listener had not read.
	Unread map[string]event.Loss `json:"unread,omitempty"`
	// Sent is what it had read: lost only when the process ends before that was acked.
	Sent map[string]event.Loss `json:"sent,omitempty"`
	// fresh is how much of Unread no earlier notice tells.
	fresh map[string]int
}

func newLosses() Losses {
	return Losses{
		Unread: map[string]event.Loss{}, Sent: map[string]event.Loss{}, fresh: map[string]int{},
	}
}

// add counts an entry as lost for a listener that had not acked it. gaps are the positions of those
// before it.
func (ls *Losses) add(c *Cursor, s *stand, at Position, r *record, set Listeners, gaps []Position) {
	name, pending := c.name, s.has(at)
	unread := at >= s.next
	if r.Losses != nil {
		notified := r.Losses.Unread[name].Events > 0
		ls.carry(name, s.owes(at, gaps, notified), notified && pending, unread, r.Losses)
		return
	}
	switch {
	case set&c.bit == 0:
	case pending:
		merge(ls.Sent, name, r.loss())
	case unread:
		merge(ls.Unread, name, r.loss())
		ls.fresh[name]++
	}
}

// loss is what a stream lacks without the entry: of one about a list, what that stands for.
func (e *Entry) loss() event.Loss {
	switch {
	case e.Kind == OfGap:
		return event.Between(e.Relist.From, e.Relist.To)
	case e.Kind == OfListEnd:
		return event.Between(e.Since, e.Version)
	case e.Kind == OfProgress:
		return event.Loss{From: e.Version, To: e.Version} // of no change
	case e.Unreadable != nil:
		return event.Loss{Events: 1, From: e.Unreadable.Version, To: e.Unreadable.Version}
	default: // what a list found to be gone went somewhere in between
		own := event.Loss{Events: 1, From: e.Version, To: e.Version}
		return own.And(event.Loss{From: e.Told, To: e.Told})
	}
}

// carry takes over what an earlier notice tells, as far as the listener still depends on it.
func (ls *Losses) carry(name string, sent, telling, unread bool, earlier *Losses) {
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
func (ls *Losses) listeners(l *Log) (set Listeners) {
	for _, c := range l.cursors {
		if ls.Unread[c.name].Events > 0 {
			set |= c.bit
		}
	}
	return set
}
