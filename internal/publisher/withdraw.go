package publisher

import (
	"errors"
	"slices"
)

// What was added may be wrong to send by now: a changed configuration takes values out of objects, and events made before still have them. So
// an adder can have its items back. Most leave their lanes at once. What is in a worker's round, has no lane yet, or is still to be added for the
// adder, is left out of the batch before the call (leaveOut), and leaves at the end of the round (sweepLocked). What is in a call of the sink at
// that moment can't be taken out of it.

// Withdrawer is a Settler that can have its items back.
type Withdrawer interface {
	Settler
	// Withdrawn gives items back that will not be sent, or not again: the last call that held one may have stored it all the same. It is
	// called as Settle is.
	Withdrawn(items []*Item)
	// Idle says whether no item of it is settled, or given back, any more.
	Idle() bool
}

// errWithdrawn is the answer to a message that was taken out of its batch before the call.
var errWithdrawn = errors.New("withdrawn")

// Withdraw gives w its items back, and all that are added for it from now on: when it has returned, none is put into a call of the sink. What is in
// one is settled when the sink takes it, and else given back. What the sink has acknowledged is settled, in its place. The items of others keep
// their order.
func (p *Publisher) Withdraw(w Withdrawer) {
	p.mu.Lock()
	p.withdrawers = append(p.withdrawers, w)
	p.withdrawing.Store(int64(len(p.withdrawers)))
	var back []*Item
	for _, l := range p.lanes {
		if !l.picked {
			back = p.sweepLocked(l, back)
		}
	}
	p.mu.Unlock()
	p.handBack(back)
}

// withdrawnLocked says whether an item is to be given back rather than sent.
func (p *Publisher) withdrawnLocked(it *Item) bool {
	return len(p.withdrawers) > 0 && !it.acked && slices.ContainsFunc(p.withdrawers, func(w Withdrawer) bool { return it.Settler == Settler(w) })
}

// sweepLocked takes what is to be given back out of a lane that is in no worker's round.
func (p *Publisher) sweepLocked(l *lane, back []*Item) []*Item {
	if len(p.withdrawers) == 0 {
		return back
	}
	rest := *l
	l.head, l.tail = nil, nil
	for rest.head != nil {
		it := rest.pop()
		if !p.withdrawnLocked(it) {
			l.push(it)
			continue
		}
		p.ages.remove(it)
		back = append(back, it)
	}
	return back
}

// handBack gives withdrawn items to their adders, which are asked whether that was all.
func (p *Publisher) handBack(back []*Item) {
	if len(back) > 0 {
		p.giveBack(back) // their sizes, before they are the adders' again
	}
	for len(back) > 0 {
		settler := back[0].Settler
		mine := slices.DeleteFunc(slices.Clone(back), func(it *Item) bool { return it.Settler != settler })
		back = slices.DeleteFunc(back, func(it *Item) bool { return it.Settler == settler })
		for _, it := range mine {
			it.restore()
		}
		settler.(Withdrawer).Withdrawn(mine)
	}
	p.forgetWithdrawers()
}

// forgetWithdrawers forgets those that have nothing here any more.
func (p *Publisher) forgetWithdrawers() {
	if p.withdrawing.Load() == 0 {
		return
	}
	p.mu.Lock()
	all := slices.Clone(p.withdrawers)
	p.mu.Unlock()
	idle := slices.DeleteFunc(all, func(w Withdrawer) bool { return !w.Idle() })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withdrawers = slices.DeleteFunc(p.withdrawers, func(w Withdrawer) bool { return slices.Contains(idle, w) })
	p.withdrawing.Store(int64(len(p.withdrawers)))
}

// leaveOut takes out of the batch, at the last moment, what was withdrawn since it was picked.
func (w *worker) leaveOut() {
	if w.withdrawing.Load() == 0 {
		return
	}
	w.batch = w.batch[:0]
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.items {
		switch {
		case it.acked:
		case w.withdrawnLocked(it):
			it.Message.Err = errWithdrawn
		default:
			w.batch = append(w.batch, &it.Message)
		}
	}
}

// unpick ends the round of lanes that are not released: what was withdrawn meanwhile leaves them.
func (w *worker) unpick(first, delayed []*lane) {
	if len(first)+len(delayed) == 0 {
		return
	}
	var back []*Item
	w.mu.Lock()
	for _, lanes := range [][]*lane{first, delayed} {
		for _, l := range lanes {
			l.picked = false
			back = w.sweepLocked(l, back)
		}
	}
	w.mu.Unlock()
	w.handBack(back)
}
