package ratelimit

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Backoff spaces the attempts at one shared thing, a connection for example: the delays double from
// Initial (default 100 ms) to Max (default 30 s), each shortened by up to a half. Unlike FullJitter
// it never comes near zero, since no other work fills the time here. It is for one goroutine.
type Backoff struct {
	Initial, Max time.Duration

	last time.Duration // before jitter; 0 after Reset
}

// Next returns how long to wait after one more failure.
func (b *Backoff) Next() time.Duration {
	longest := cmp.Or(b.Max, 30*time.Second)
	if b.last == 0 {
		b.last = cmp.Or(b.Initial, 100*time.Millisecond)
	} else if b.last < longest {
		b.last *= 2
	}
	b.last = min(b.last, longest)
	return b.last - rand.N(b.last/2+1)
}

// Reset starts again with Initial. Call it after a success.
func (b *Backoff) Reset() { b.last = 0 }
