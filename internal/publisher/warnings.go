package publisher

import (
	"log/slog"
	"sync"
	"time"
)

// warnings are those that would come once per message during a fault.
type warnings struct{ retry, route, oversize, claim, dead throttle }

// throttle lets one warning through every ten seconds and counts the others: a fault that hits 10,000 lanes is one fault.
type throttle struct {
	mu         sync.Mutex
	next       time.Time // guarded by mu
	suppressed int       // guarded by mu
}

func (t *throttle) warn(log *slog.Logger, message string, args ...any) {
	suppressed, ok := t.pass(time.Now())
	if !ok {
		log.Debug(message, args...) //nolint:sloglint // a constant of the caller
		return
	}
	log.Warn(message, append(args, "suppressed", suppressed)...) //nolint:sloglint // a constant of the caller
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
