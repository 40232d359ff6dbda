package publisher

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// PositionHold keeps the saved position of a sink from passing a position in the sink's log. The
// items that have the hold were stored behind that position. An item gets its hold at the first
// attempt. When the item is settled, its Settler owns the hold, and releases it when no restart
// will add the item again.
type PositionHold struct {
	position []byte // guarded by holds.mu until an item has it, then constant
	items    atomic.Int64
}

// Release is called once for each item that had the hold. A nil hold is of a sink without
// positions.
func (h *PositionHold) Release() {
	if h != nil {
		h.items.Add(-1)
	}
}

// maxHolds bounds the remembered positions while the oldest is held. With more, new items hold the
// newest of them, and a restart reads a longer tail.
const maxHolds = 64

// holds are those of one sink, the oldest first. The last one is for new items.
type holds struct {
	sink sinks.ReadBacker // nil: it has none

	mu     sync.Mutex
	list   []*PositionHold
	taken  bool // an item has had the last of list
	closed bool // the sink is: its last position stays
}

// assign gives the newest hold to n items that are about to be sent for the first time.
func (hs *holds) assign(n int) *PositionHold {
	if hs.sink == nil || n == 0 {
		return nil
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	last := hs.list[len(hs.list)-1]
	last.items.Add(int64(n))
	hs.taken = true
	return last
}

// low returns a position before every message that was sent and is still held, or will be sent.
// Messages released before the call may lie before it, so a commit calls low before it takes what
// is settled. It is nil while the sink is not open.
func (hs *holds) low() []byte {
	if hs.sink == nil || !hs.opened() {
		return nil
	}
	hs.renew()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	n := 0
	for n < len(hs.list)-1 && hs.list[n].items.Load() == 0 {
		n++
	}
	hs.list = append(hs.list[:0], hs.list[n:]...)
	return hs.list[0].position
}

func (hs *holds) opened() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.list) > 0
}

// renew makes the sink's current position the newest hold. Messages sent from now on lie behind it;
// those in flight have an earlier one.
func (hs *holds) renew() {
	hs.mu.Lock()
	closed := hs.closed
	hs.mu.Unlock()
	if closed {
		return
	}
	position := hs.sink.Position() // without the lock: what is sent meanwhile takes the hold before
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case hs.closed: // meanwhile: this may be the position of a closed sink
	case len(hs.list) == 0:
		hs.list = []*PositionHold{{position: position}}
	case !hs.taken:
		hs.list[len(hs.list)-1].position = position
	case len(hs.list) < maxHolds:
		hs.list = append(hs.list, &PositionHold{position: position})
		hs.taken = false
	}
}

// open takes the first position of a sink, after its ReadBack.
func (hs *holds) open() {
	if hs.sink != nil {
		hs.renew()
	}
}

// close takes the last position of a sink that is about to be closed.
func (hs *holds) close() {
	if hs.sink == nil || !hs.opened() {
		return
	}
	hs.renew()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.closed = true
}

// unansweredHolds has the holds of items in doubt: Detach has taken them back after a call without
// an answer, or KeepHolds has taken their holds over. Each hold is kept until the same event is
// settled. A process or a sink that takes over before that reads the sink's log from before the
// event, and so learns whether it is stored.
type unansweredHolds struct {
	count atomic.Int64 // len(holds), for those who look without the lock

	mu    sync.Mutex
	holds map[string]earlierHold // guarded by mu, by MessageID
}

type earlierHold struct {
	hold  *PositionHold
	since time.Time
}

// keepInDoubt bounds how long a hold is kept: an event that was not added again by then never is,
// and the sink's position must move on.
const keepInDoubt = time.Hour

// takeHold takes over the item's hold.
func (d *unansweredHolds) takeHold(it *Item) {
	if it.Hold != nil {
		d.keep(it.Message.Event.MessageID(), it.Hold)
		it.Hold = nil
	}
}

// KeepHolds takes over the holds of settled events, by MessageID, that will be added again all the
// same: their settler has called Detach before all their copies were settled.
func (p *Publisher) KeepHolds(holds map[string]*PositionHold) {
	for id, hold := range holds {
		p.inDoubt.keep(id, hold)
	}
}

func (d *unansweredHolds) keep(id string, hold *PositionHold) {
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

// settled gives the holds of settled items to the items, in place of later ones.
func (d *unansweredHolds) settled(items []*Item) {
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

// expire releases holds that were kept for too long.
func (d *unansweredHolds) expire(now time.Time) {
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
