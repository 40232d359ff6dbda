package changelog

import (
	"cmp"
	"slices"
	"time"
)

// pending is what a cursor has read and not acked, in order of positions.
type pending struct {
	// items are in order. Those that are done go when they are at the front, or when they are most
	// of them: one that is not acked must not keep all later ones.
	items queue[pendingItem]
	done  int
}

type pendingItem struct {
	at       Position
	observed time.Time
	done     bool
}

// add adds a position behind all others.
func (p *pending) add(at Position, observed time.Time) {
	p.items.push(pendingItem{at: at, observed: observed})
}

func (p *pending) len() int { return p.items.len() - p.done }

// find gives the index of the first item at or behind a position.
func (p *pending) find(at Position) (i int, found bool) {
	i, found = slices.BinarySearchFunc(p.items.live(), at, func(item pendingItem, at Position) int {
		return cmp.Compare(item.at, at)
	})
	return i, found && !p.items.at(i).done
}

// remove takes a position out, and reports whether it was there.
func (p *pending) remove(at Position) bool {
	i, found := p.find(at)
	if !found {
		return false
	}
	p.items.at(i).done = true
	p.done++
	n := 0
	for n < p.items.len() && p.items.at(n).done {
		n++
	}
	p.items.drop(n)
	if p.done -= n; p.done > 1024 && p.done > p.items.len()/2 {
		p.items.filter(func(item *pendingItem) bool { return !item.done })
		p.done = 0
	}
	return true
}

// low is the first position that is not acked, and when its entry was observed.
func (p *pending) low() (at Position, observed time.Time, ok bool) {
	if p.items.len() == 0 {
		return 0, time.Time{}, false
	}
	first := p.items.at(0)
	return first.at, first.observed, true
}

// positions are those that are not acked, in order.
func (p *pending) positions() []Position {
	out := make([]Position, 0, p.len())
	for _, item := range p.items.live() {
		if !item.done {
			out = append(out, item.at)
		}
	}
	return out
}
