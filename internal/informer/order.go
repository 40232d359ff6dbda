package informer

import (
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// order keeps settled states from overtaking. When all changes are for all listeners, those of one object are settled in their order.
// When some are for some, or for nobody, or a listener leaves out what a later one makes needless, a later one can be settled while an earlier
// one is on its way: were the later state committed then, a replay after a crash would take the earlier change for covered, and it would be
// lost. So a state waits for the changes of its object before it. The places in the stream need no such care: that of the earlier change
// holds the watermark.
//
// A nil order is for informers without selectors, and without listeners with Latest. All methods are called under Informer.settling.
type order struct {
	objects map[resource.Key][]waiting
}

// waiting is a change of an object that is not settled, or the state that is settled behind it.
type waiting struct {
	change *change // nil when it is settled
	state  store.Settled
}

func newOrder() *order { return &order{objects: map[resource.Key][]waiting{}} }

// begin notes a change on its way.
func (o *order) begin(c *change) {
	if o != nil {
		o.objects[c.Key] = append(o.objects[c.Key], waiting{change: c})
	}
}

// end notes that a change is settled. The state is what its object has settled by that, when nothing before it is on its way; else it is
// kept and given out later.
func (o *order) end(c *change) (state store.Settled, ok bool) {
	list := o.objects[c.Key]
	for i := range list {
		if list[i].change == c {
			list[i] = waiting{state: c.settled()}
		}
	}
	// Of states that follow each other the last counts.
	kept := list[:0]
	for i := range list {
		if n := len(kept); n > 0 && kept[n-1].change == nil && list[i].change == nil {
			kept[n-1] = list[i]
		} else {
			kept = append(kept, list[i])
		}
	}
	clear(list[len(kept):])
	if kept[0].change == nil {
		state, ok, kept = kept[0].state, true, kept[1:]
	}
	if len(kept) == 0 {
		delete(o.objects, c.Key)
	} else {
		o.objects[c.Key] = kept
	}
	return state, ok
}
