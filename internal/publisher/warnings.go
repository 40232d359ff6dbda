package publisher

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// warnings are those that come once per message during a fault.
type warnings struct {
	retry, route, oversize, claim, panicked throttle
	deadLettered, kept, lost, pending       throttle // of refused messages
}

// throttle lets one line through every ten seconds and counts the others: a fault that hits 10,000
// lanes is one fault. The others are debug lines.
type throttle struct {
	mu         sync.Mutex
	next       time.Time // guarded by mu
	suppressed int       // guarded by mu
}

func (t *throttle) warn(log *slog.Logger, message string, args ...any) {
	t.log(log, slog.LevelWarn, message, args...)
}

func (t *throttle) log(log *slog.Logger, level slog.Level, message string, args ...any) {
	suppressed, ok := t.pass(time.Now())
	if !ok {
		level = slog.LevelDebug
	} else {
		args = append(args, "suppressed", suppressed)
	}
	//nolint:sloglint // a constant of the caller
	log.Log(context.Background(), level, message, args...)
}

func (t *throttle) pass(now time.Time) (suppressed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.suppressed++
		return 0, false
	}
	suppressed, t.suppressed = t.suppressed, 0
	t.next = now.Add(10 * time.Second)
	return suppressed, true
}
