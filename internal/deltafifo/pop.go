package deltafifo

import (
	"context"
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
)

// maxBatch is how many deltas a Processor gets at once.
const maxBatch = 256

// keepItems is the capacity of an empty queue. Memory that a flood took beyond that is freed.
const keepItems = 1024

// Processor decides what deltas mean: the controller.
type Processor interface {
	// Process takes deltas in stream order. They are valid until it returns.
	Process(ctx context.Context, d Deltas) error
	// TryProcess processes the first n of the deltas, as far as nothing has to be waited for. They
	// are changes of objects and Bookmarks, and no part of a list. They are valid until it returns.
	TryProcess(d Deltas) (n int, err error)
}

// Pop waits for deltas and has p process one batch of them: at most 256 deltas, up to the next
// begin or end of a list. A ReplaceBegin comes alone. A ReplaceEnd comes last, behind the deletes
// that it implies, which may take several calls of Process. When p or KnownObjects fails, that
// error ends the FIFO and every further Pop returns it. When ctx ends while nothing is queued, Pop
// returns its cause. It returns ErrClosed when the FIFO is closed and empty.
//
// While Pop waits, a call of Flush may run p on its own goroutine.
func (f *FIFO) Pop(ctx context.Context, p Processor) error {
	if err := f.dequeue(ctx, p); err != nil {
		return err
	}
	synced := f.list.annotate(f.batch)
	var err error
	if f.batch[0].Type == ReplaceEnd {
		err = f.processEnd(ctx, p)
	} else {
		err = f.process(ctx, p)
	}
	if err != nil {
		f.end(err)
		return err
	}
	if synced {
		f.synced.Store(true)
	}
	f.mu.Lock()
	f.taken = 0
	f.mu.Unlock()
	return nil
}

// dequeue waits for the next batch and moves it out of the queue.
func (f *FIFO) dequeue(ctx context.Context, p Processor) error {
	step := func() bool { return f.step(p) }
	for {
		f.mu.Lock()
		n, err := f.batchLocked()
		if n > 0 {
			f.dequeueLocked(n)
		}
		f.mu.Unlock()
		if n > 0 || err != nil {
			return err
		}
		if err := f.spot.Wait(ctx, step); err != nil {
			return err
		}
	}
}

// step processes queued deltas while Pop waits, on the goroutine that has queued them. It reports
// false where Pop has to continue: there are more, or something has to be waited for.
func (f *FIFO) step(p Processor) bool {
	if f.list.relist != nil || !f.synced.Load() {
		return false
	}
	n := f.peek()
	if n == 0 {
		return false
	}
	done, err := p.TryProcess(f.batch)
	clear(f.batch)
	f.batch = f.batch[:0]
	if err != nil {
		f.end(err)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(done)
	return len(f.items) == f.head && !f.closed
}

// peek copies the queued deltas to the batch, if they are few enough for a step.
func (f *FIFO) peek() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.items[f.head:]
	many := len(waiting) >= stepSize || len(waiting) > 1 && f.bytes >= stepBytes
	if many || f.flood || f.err != nil {
		return 0
	}
	for i := range waiting {
		switch d := &waiting[i]; d.Type {
		case Added, Updated, Deleted, Unselected, Bookmark:
		default:
			waiting = waiting[:i]
		}
		if i >= len(waiting) {
			break
		}
	}
	f.batch = append(f.batch[:0], waiting...)
	return len(f.batch)
}

// batchLocked returns the size of the next batch, or why there will be none any more.
func (f *FIFO) batchLocked() (n int, err error) {
	if f.err != nil {
		return 0, f.err
	}
	waiting := f.items[f.head:]
	if len(waiting) == 0 && f.closed {
		return 0, ErrClosed
	}
	for n = range min(len(waiting), maxBatch) {
		if t := waiting[n].Type; t == ReplaceBegin || t == ReplaceEnd {
			return max(n, 1), nil
		}
	}
	return min(len(waiting), maxBatch), nil
}

// dequeueLocked moves the first n deltas out of the queue.
func (f *FIFO) dequeueLocked(n int) {
	f.batch = append(f.batch[:0], f.items[f.head:f.head+n]...)
	f.dropLocked(n)
	f.taken = n
}

// dropLocked removes the first n deltas from the queue.
func (f *FIFO) dropLocked(n int) {
	taken := f.items[f.head : f.head+n]
	for i := range taken {
		f.bytes -= taken[i].size()
	}
	clear(taken)
	f.head += n
	switch waiting := len(f.items) - f.head; {
	case waiting == 0 && cap(f.items) > keepItems:
		f.items, f.head = nil, 0
	case f.head > waiting: // so each delta is moved once at most, on average
		copy(f.items, f.items[f.head:])
		clear(f.items[f.head:])
		f.items, f.head = f.items[:waiting], 0
	}
	f.cfg.Account.Set(f.bytes)
	f.metrics.popped(f.bytes)
	f.makeRoomLocked()
}

// process has the batch processed, and empties it.
func (f *FIFO) process(ctx context.Context, p Processor) error {
	err := p.Process(ctx, f.batch)
	clear(f.batch)
	f.batch = f.batch[:0]
	return err
}

// processEnd processes the deletes that a ReplaceEnd implies, and then the ReplaceEnd.
func (f *FIFO) processEnd(ctx context.Context, p Processor) error {
	end := f.batch[0]
	f.batch = f.batch[:0]
	var why resource.Relist
	if end.Relist != nil {
		why = *end.Relist
	}
	gone := Delta{Type: Deleted, FinalStateUnknown: true, Version: end.Version, Relist: end.Relist}
	for key, err := range f.cfg.Known.Missing(end.Version, why) {
		if err != nil {
			return fmt.Errorf("find what a list no longer holds: %w", err)
		}
		gone.Key = key
		f.batch = append(f.batch, gone)
		if len(f.batch) < maxBatch {
			continue
		}
		if err := f.process(ctx, p); err != nil {
			return err
		}
	}
	f.batch = append(f.batch, end)
	return f.process(ctx, p)
}
