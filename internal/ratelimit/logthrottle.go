package ratelimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logInterval is how often a line passes: a fault that lasts for an hour is 360 lines.
const logInterval = 10 * time.Second

// LogThrottle is of one message. Its zero value is ready.
type LogThrottle struct {
	mu         sync.Mutex
	next       time.Time // guarded by mu
	suppressed int       // guarded by mu
}

// Warn is Log of a warning.
func (t *LogThrottle) Warn(log *slog.Logger, message string, args ...any) {
	t.Log(log, slog.LevelWarn, message, args...)
}

// Log writes a line at the level, with how many were suppressed since the last one, or else at the
// debug level.
func (t *LogThrottle) Log(log *slog.Logger, level slog.Level, message string, args ...any) {
	suppressed, ok := t.pass(time.Now())
	if !ok {
		level = slog.LevelDebug
	} else {
		args = append(args, "suppressed", suppressed)
	}
	//nolint:sloglint // a constant of the caller
	log.Log(context.Background(), level, message, args...)
}

func (t *LogThrottle) pass(now time.Time) (suppressed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.suppressed++
		return 0, false
	}
	suppressed, t.suppressed = t.suppressed, 0
	t.next = now.Add(logInterval)
	return suppressed, true
}
