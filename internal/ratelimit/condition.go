package ratelimit

import (
	"context"
	"sync"
)

// WaitCond is for a condition over several fields, which no channel shows: room, a slow disk, a drain,
// or the next change of a listener of the newest states. It waits on c, whose lock the caller holds, until ready says so; ready is called with the lock
// held. It returns ctx's cause when ctx ends first. Whoever changes what ready looks at calls
// c.Broadcast.
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
