// Package condition waits on a sync.Cond under a context, for a condition over several fields that
// no channel shows. Who waits here waits for room, for a slow disk, for a drain, or for the next
// change as a listener of the newest states only. A change that goes to a listener of every change
// waits here only where there is no room.
//
// A channel in place of the sync.Cond would have to be closed and made again at each change of a
// field, or count its waiters. That costs an allocation or a field for changes that nobody awaits.
package condition

import (
	"context"
	"sync"
)

// Wait waits on c, whose lock the caller holds, until ready says so; ready is called with the lock
// held. It returns ctx's cause when ctx ends first. Whoever changes what ready looks at calls
// c.Broadcast.
func Wait(ctx context.Context, c *sync.Cond, ready func() bool) error {
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
