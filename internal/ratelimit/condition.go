package ratelimit

import (
	"context"
	"sync"
)

// WaitCond waits on c until ready reports true, or returns ctx's cause when ctx ends first. The
// caller holds c's lock; ready is called with the lock held. Whoever changes what ready reads calls
// c.Broadcast.
//
// It is for a condition over several fields: room, a slow disk, a drain, or the next change of a
// listener of the newest states. A channel in place of the sync.Cond would have to be closed and
// made again at each change of a field, or count its waiters. That costs an allocation or a field
// for changes that nobody awaits.
func WaitCond(ctx context.Context, c *sync.Cond, ready func() bool) error {
	if ready() {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		c.L.Lock() // else the wake-up could fall between the waiter's check and its Wait
		defer c.L.Unlock()
		c.Broadcast()
	})
	defer stop()
	for !ready() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.Wait()
	}
	return nil
}
