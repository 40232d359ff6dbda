package ratelimit

import (
	"context"
	"time"
)

// Sleep waits for d. It returns early, with the cause, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error { return SleepOr(ctx, d, nil) }

// SleepOr is Sleep that returns early when woken is closed or has a value, too. With a negative d
// only woken and ctx end it.
func SleepOr(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	var due <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-woken:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
