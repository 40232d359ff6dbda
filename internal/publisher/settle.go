package publisher

import "time"

// settle uses same for the items of one settler, and gives it back to be used again.
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

// watch shows what is settled to those who look on, before its settlers have it back.
func (p *Publisher) watch(settled []*Item) {
	if len(settled) == 0 {
		return
	}
	p.metrics.delivered(settled, time.Now())
	if p.cfg.OnSettle != nil {
		p.cfg.OnSettle(settled)
	}
}
