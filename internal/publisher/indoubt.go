package publisher

import (
	"sync"
	"sync/atomic"
	"time"
)

// inDoubt holds the marks of items that Detach has taken back after they were in a call without an
// answer. Each is held until the same event is settled: a process or a sink that takes over before
// that reads the sink's log from before it, and so learns whether the event is stored.
type inDoubt struct {
	count atomic.Int64 // len(marks), for those who look without the lock

	mu    sync.Mutex
	marks map[string]heldMark // guarded by mu, by MessageID
}

type heldMark struct {
	mark  *Mark
	since time.Time
}

// keepInDoubt bounds how long a mark is held: an event that was not added again by then never is,
// and the sink's position must get on.
const keepInDoubt = time.Hour

// add takes over the item's hold.
func (d *inDoubt) add(it *Item) {
	mark := it.Mark
	if it.Mark = nil; mark == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marks == nil {
		d.marks = map[string]heldMark{}
	}
	id := it.Message.Event.MessageID()
	if earlier, ok := d.marks[id]; ok {
		mark.Release()
		mark = earlier.mark
	}
	d.marks[id] = heldMark{mark, time.Now()}
	d.count.Store(int64(len(d.marks)))
}

// settled gives the marks of items that are settled to their settlers, in place of later ones.
func (d *inDoubt) settled(items []*Item) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range items {
		id := it.Message.Event.MessageID()
		if earlier, ok := d.marks[id]; ok {
			it.Mark.Release()
			it.Mark = earlier.mark
			delete(d.marks, id)
		}
	}
	d.count.Store(int64(len(d.marks)))
}

// expire releases what was held for too long.
func (d *inDoubt) expire(now time.Time) {
	if d.count.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, in := range d.marks {
		if now.Sub(in.since) >= keepInDoubt {
			in.mark.Release()
			delete(d.marks, id)
		}
	}
	d.count.Store(int64(len(d.marks)))
}
