package history

import (
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

// clock is the time that retention goes by. This machine's own clock may jump, and with it alone a
// jump ahead would remove everything. So it is believed up to the newest time that the API server
// gave a change, and the time that has passed since.
type clock struct {
	mu     sync.Mutex
	newest time.Time     // guarded by mu
	at     time.Duration // when newest was learned, as time that has passed; guarded by mu
}

// clockTolerance is how far the two may differ before it is logged.
const clockTolerance = time.Hour

// learn learns the times of changes, while passed has passed.
func (c *clock) learn(passed time.Duration, events []*event.Event) {
	for _, e := range events {
		if e.TimeSource == event.TimeManagedFields { // another time is of this machine's clock
			c.set(passed, e.Time)
		}
	}
}

// set learns a time, unless it is known that it is later.
func (c *clock) set(passed time.Duration, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.newest.Add(passed - c.at)) {
		c.newest, c.at = t, passed
	}
}

// now is the earlier one of this machine's time and of the one that is known, and how far this
// machine's is ahead. Zero: none is known yet.
func (c *clock) now(machine time.Time, passed time.Duration) (now time.Time, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest.IsZero() {
		return now, 0
	}
	now = c.newest.Add(passed - c.at)
	if ahead = machine.Sub(now); ahead < 0 {
		now = machine
	}
	return now, ahead
}
