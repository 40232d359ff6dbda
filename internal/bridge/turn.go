package bridge

import "context"

// turn is had by one goroutine at a time. It holds one token while somebody has it.
type turn chan struct{}

// take waits for the turn, or until ctx ends.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryTake takes the turn if nobody has it.
func (t turn) tryTake() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// give gives it back.
func (t turn) give() { <-t }
