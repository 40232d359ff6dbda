package deltafifo

import (
	"context"
	"fmt"
	"iter"

	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/resource"
)

// Batch is what one Pop hands out. Its memory belongs to the FIFO and is used again by the next Pop.
type Batch struct {
	Deltas []Deltas

	entries []*entry
	ends    int // ReplaceEnds in it
}

// Pop waits until something is there and fills the batch with up to max Deltas. Calling it says that the batch before was
// applied to the known objects. The begin of a replacement comes alone, and its end ends a batch, so that what the controller does at
// it is done between what is before and what follows. It returns ctx's cause when ctx ends, and ErrClosed when the FIFO is closed and empty.
func (f *FIFO) Pop(ctx context.Context, batch *Batch, max int) error {
	f.recycle(batch)
	if f.sweep != nil {
		return f.popMissing(batch, max)
	}
	f.mu.Lock()
	if err := condition.Wait(ctx, f.cond, func() bool { return f.closed || f.head < len(f.queue) }); err != nil {
		f.mu.Unlock()
		return err
	}
	if f.head == len(f.queue) {
		f.mu.Unlock()
		return ErrClosed
	}
	if front := &f.queue[f.head].Items[0]; front.Type == ReplaceEnd {
		f.sweep = newSweep(f.cfg.Known, front)
		f.mu.Unlock()
		return f.popMissing(batch, max)
	}
	f.takeLocked(batch, max)
	f.mu.Unlock()
	return nil
}

// takeLocked moves entries into the batch, up to max and up to the next barrier.
func (f *FIFO) takeLocked(batch *Batch, max int) {
	for f.head < len(f.queue) && len(batch.Deltas) < max {
		e := f.queue[f.head]
		kind := e.Items[0].Type
		if kind == ReplaceEnd || kind == ReplaceBegin && len(batch.Deltas) > 0 {
			break // what is before a begin is applied first; what an end implies comes before it
		}
		f.handOutLocked(batch, e)
		if kind == ReplaceBegin {
			break
		}
	}
	f.cond.Broadcast()
}

// handOutLocked moves the front entry into the batch.
func (f *FIFO) handOutLocked(batch *Batch, e *entry) {
	f.queue[f.head] = nil
	f.head++
	if f.head == len(f.queue) {
		f.queue, f.head = f.queue[:0], 0
	} else if f.head > 1024 && f.head > len(f.queue)/2 {
		n := copy(f.queue, f.queue[f.head:])
		clear(f.queue[n:])
		f.queue, f.head = f.queue[:n], 0
	}
	if f.open[e.Key] == e {
		delete(f.open, e.Key)
	}
	f.bytes -= e.bytes
	f.metrics.popped(f.bytes)
	batch.entries = append(batch.entries, e)
	batch.Deltas = append(batch.Deltas, e.Deltas)
}

// recycle gives the entries of an applied batch back.
func (f *FIFO) recycle(batch *Batch) {
	const keep = 1024
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replaces -= batch.ends
	for _, e := range batch.entries {
		if len(f.free) == keep || cap(e.Items) > 64 {
			continue
		}
		clear(e.Items)
		*e = entry{Deltas: Deltas{Items: e.Items[:0], Collapsed: e.Collapsed[:0]}}
		f.free = append(f.free, e)
	}
	clear(batch.entries)
	clear(batch.Deltas)
	*batch = Batch{Deltas: batch.Deltas[:0], entries: batch.entries[:0]}
}

// sweep walks the objects that a list did not hold.
type sweep struct {
	end  Delta
	next func() (resource.Key, error, bool)
	stop func()
}

func newSweep(known KnownObjects, end *Delta) *sweep {
	s := &sweep{end: *end}
	var why resource.Relist
	if end.Relist != nil {
		why = *end.Relist
	}
	s.next, s.stop = iter.Pull2(known.Missing(end.Version, why))
	return s
}

// popMissing fills the batch with the deletes that the ReplaceEnd at the front implies, and with the end when there are no more.
func (f *FIFO) popMissing(batch *Batch, max int) error {
	for len(batch.Deltas) < max {
		key, err, ok := f.sweep.next()
		if err != nil {
			f.Abandon()
			return fmt.Errorf("find what a list no longer holds: %w", err)
		}
		if !ok {
			f.Abandon()
			f.mu.Lock()
			f.handOutLocked(batch, f.queue[f.head])
			batch.ends++
			f.cond.Broadcast()
			f.mu.Unlock()
			return nil
		}
		batch.Deltas = append(batch.Deltas, Deltas{Key: key, Items: []Delta{f.sweep.deletion()}})
	}
	return nil
}

// Abandon gives up what Pop has begun: the walk through the known objects. The controller calls it when it will not Pop again.
func (f *FIFO) Abandon() {
	if f.sweep != nil {
		f.sweep.stop()
		f.sweep = nil
	}
}

func (s *sweep) deletion() Delta {
	return Delta{Type: Deleted, Seq: s.end.Seq, FinalStateUnknown: true, Version: s.end.Version, Relist: s.end.Relist}
}
