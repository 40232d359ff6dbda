package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// errDetach ends the calls of the sink that Detach does not wait for.
var errDetach = errors.New("the call is cancelled, since an informer that has items in it ends")

// detachment is one call of Detach.
type detachment struct {
	settler Settler
	tried   []*Item // guarded by Publisher.mu
}

// Detach takes back the items of settler s. It waits until no call of the sink holds one, and
// cancels those calls when ctx ends. Items that the sink acknowledged are settled, even behind an
// item that is not. The others stay unsettled. It returns the items that were in a call without an
// answer: the sink may have stored them. s is not called after Detach.
//
// No call of Add with items of s may be running, or follow.
func (p *Publisher) Detach(ctx context.Context, s Settler) (tried []*Item) {
	d := &detachment{settler: s}
	var left takenItems
	p.mu.Lock()
	p.detaching = append(p.detaching, d)
	for _, l := range p.lanes {
		if l.worker == nil {
			p.sweepLocked(l, &left)
		}
	}
	p.sweepUnroutedLocked(&left)
	p.mu.Unlock()
	p.handBack(&left)
	empty := p.capacity.emptied(s)
	select {
	case <-empty:
	case <-ctx.Done():
		p.cancelCalls(s)
		<-empty
	}
	p.capacity.forget(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detaching = slices.DeleteFunc(p.detaching, func(other *detachment) bool { return other == d })
	return d.tried
}

// takenItems are items that were taken out of lanes for calls of Detach.
type takenItems struct {
	settled []*Item
	back    []*Item // not settled
}

// detachmentOfLocked returns the call of Detach that takes an item back, nil for none.
func (p *Publisher) detachmentOfLocked(it *Item) *detachment {
	for _, d := range p.detaching {
		if d.settler == it.Settler {
			return d
		}
	}
	return nil
}

// sweepLocked takes the items of detaching settlers out of a lane that no worker has. The others
// keep their order.
func (p *Publisher) sweepLocked(l *lane, out *takenItems) {
	if len(p.detaching) == 0 {
		return
	}
	rest := lane{head: l.head, tail: l.tail} // the worker that put it back may still write the rest
	l.head, l.tail = nil, nil
	for rest.head != nil {
		it := rest.pop()
		if d := p.detachmentOfLocked(it); d != nil {
			p.reclaimLocked(d, it, out)
		} else {
			l.push(it)
		}
	}
}

// reclaimLocked reclaims an item that is in no lane any more.
func (p *Publisher) reclaimLocked(d *detachment, it *Item, out *takenItems) {
	p.ages.remove(it)
	if it.state.settled() {
		out.settled = append(out.settled, it)
		return
	}
	if it.state == itemTried {
		d.tried = append(d.tried, it)
		p.inDoubt.takeHold(it)
	}
	it.apply(onDetach)
	out.back = append(out.back, it)
}

// sweepUnroutedLocked takes back the items of detaching settlers that have no lane yet. It leaves
// the item that the sink is being asked about: routeObject takes that one back.
func (p *Publisher) sweepUnroutedLocked(out *takenItems) {
	if len(p.detaching) == 0 {
		return
	}
	for _, key := range slices.Collect(maps.Keys(p.unrouted.objects)) {
		if p.unrouted.asked == key {
			continue
		}
		w := p.unrouted.objects[key]
		var others []*Item
		for w.lane.head != nil {
			it := p.unrouted.popLocked(key)
			if d := p.detachmentOfLocked(it); d != nil {
				p.reclaimLocked(d, it, out)
			} else {
				others = append(others, it)
			}
		}
		for _, it := range others {
			p.unrouted.pushLocked(key, w.route, it)
		}
	}
}

// handBack gives the settlers their settled items, and frees the capacity of all items that were
// taken out. Detach of their settlers returns afterwards.
func (p *Publisher) handBack(out *takenItems) {
	if len(out.settled) > 0 {
		p.settle(out.settled, nil)
	}
	for _, it := range out.back {
		it.restore()
		it.Hold.Release()
		it.Hold = nil
	}
	p.giveBack(out.back)
}

// cancelCalls ends the calls that hold items of s.
func (p *Publisher) cancelCalls(s Settler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if l.worker == nil {
			continue
		}
		for it := l.head; it != nil; it = it.next {
			if it.Settler == s {
				l.worker.cancel(errDetach)
				break
			}
		}
	}
	if p.unrouted.asked != (object{}) {
		p.unrouted.cancel(errDetach)
	}
}

// settle calls the settlers of settled items, each with its own. It uses same as their slice, and
// returns it to be used again.
func (p *Publisher) settle(settled, same []*Item) []*Item {
	for _, it := range settled {
		it.restore()
	}
	p.inDoubt.settled(settled)
	p.watch(settled)
	for rest := settled; len(rest) > 0; {
		settler := rest[0].Settler
		same = same[:0]
		others := rest[:0]
		for _, it := range rest {
			if it.Settler == settler {
				same = append(same, it)
			} else {
				others = append(others, it)
			}
		}
		rest = others
		items, bytes := len(same), sizeOf(same)
		settler.Settle(same) // from here on the items are the settler's
		p.capacity.release(settler, items, bytes)
	}
	return same
}

// watch counts settled items and passes them to OnSettle, before their settlers get them.
func (p *Publisher) watch(settled []*Item) {
	if len(settled) == 0 {
		return
	}
	now := time.Now()
	p.progressed(now)
	p.metrics.delivered(settled, now)
	if p.cfg.OnSettle != nil {
		p.cfg.OnSettle(settled)
	}
}
