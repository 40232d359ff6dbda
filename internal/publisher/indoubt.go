package publisher

import (
	"sync"
	"sync/atomic"
	"time"
)

// inDoubt has the holds of items that Detach has taken back after they were in a call without an
// answer, and those that KeepHolds has taken over. Each is held until the same event is settled: a
// process or a sink that takes over before that reads the sink's log from before it, and so learns
// whether the event is stored.
type inDoubt struct {
	count atomic.Int64 // len(holds), for those who look without the lock

	mu    sync.Mutex
	holds map[string]earlierHold // guarded by mu, by MessageID
}

type earlierHold struct {
	hold  *Hold
	since time.Time
}

// keepInDoubt bounds how long a hold is kept: an event that was not added again by then never is,
// and the sink's position must get on.
const keepInDoubt = time.Hour

// add takes over the item's hold.
func (d *inDoubt) add(it *Item) {
	if it.Hold != nil {
		d.keep(it.Message.Event.MessageID(), it.Hold)
		it.Hold = nil
	}
}

// KeepHolds takes over the holds of events that were settled, by MessageID, and that are to be
// added again all the same: their settler has called Detach before all their copies were settled.
func (p *Publisher) KeepHolds(holds map[string]*Hold) {
	for id, hold := range holds {
		p.inDoubt.keep(id, hold)
	}
}

func (d *inDoubt) keep(id string, hold *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holds == nil {
		d.holds = map[string]earlierHold{}
	}
	if earlier, ok := d.holds[id]; ok {
		hold.Release()
		hold = earlier.hold
	}
	d.holds[id] = earlierHold{hold, time.Now()}
	d.count.Store(int64(len(d.holds)))
}

// settled gives the holds of items that are settled to their settlers, in place of later ones.
func (d *inDoubt) settled(items []*Item) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range items {
		id := it.Message.Event.MessageID()
		if earlier, ok := d.holds[id]; ok {
			it.Hold.Release()
			it.Hold = earlier.hold
			delete(d.holds, id)
		}
	}
	d.count.Store(int64(len(d.holds)))
}

// expire releases what was held for too long.
func (d *inDoubt) expire(now time.Time) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.holds {
		if now.Sub(in.since) >= keepInDoubt {
			in.hold.Release()
			delete(d.holds, id)
		}
	}
	d.count.Store(int64(len(d.holds)))
}
