package ratelimit

import (
	"context"
	"math"
	"sync"
	"time"
)

// Breaker pauses a whole sink while its broker can't be reached. After the pause one worker gets a
// probe; its answer ends the pause or starts a longer one. So N lanes that fail for one reason cost
// one attempt per pause, not N.
type Breaker struct {
	mu    sync.Mutex
	state breakerState // guarded by mu
	until time.Time    // guarded by mu: end of the pause
	// guarded by mu: counts the pauses, so that answers from before one are recognized
	round   int
	backoff Backoff // guarded by mu
	shaken  bool    // guarded by mu: no regular call has succeeded since the last pause
	// guarded by mu: an operator holds the sink: no call passes, whatever the state is
	held    bool
	changed chan struct{} // guarded by mu: closed and replaced at every change of state or until
}

type breakerState int

const (
	closed  breakerState = iota // calls pass
	paused                      // no call passes before until
	probing                     // one worker is trying
)

// Pass is the permission for one round of calls.
type Pass struct {
	round int
	Probe bool // send one message only, and report
}

// NewBreaker makes a Breaker that lets calls pass, with the lengths of its first and its longest
// pause.
func NewBreaker(initial, longest time.Duration) *Breaker {
	return &Breaker{
		backoff: Backoff{Initial: initial, Max: longest},
		changed: make(chan struct{}),
	}
}

// Enter blocks while the sink is paused, and returns ctx's error when it ends.
func (b *Breaker) Enter(ctx context.Context) (Pass, error) {
	for {
		got, ok, wait, changed := b.try()
		if ok {
			return got, nil
		}
		if err := SleepOr(ctx, wait, changed); err != nil {
			return Pass{}, err
		}
	}
}

// try takes a pass, or returns how long to wait for one: a negative wait lasts until changed is
// closed.
func (b *Breaker) try() (got Pass, ok bool, wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held {
		return Pass{}, false, -1, b.changed
	}
	switch b.state {
	case closed:
		return Pass{round: b.round}, true, 0, nil
	case probing:
		return Pass{}, false, -1, b.changed
	case paused:
	}
	if wait = time.Until(b.until); wait > 0 {
		return Pass{}, false, wait, b.changed
	}
	b.state = probing
	return Pass{round: b.round, Probe: true}, true, 0, nil
}

// Trip starts a pause and returns its length. It is called when the broker can't be reached. A call
// that began before the current pause changes nothing.
func (b *Breaker) Trip(p Pass) (pause time.Duration, tripped bool) {
	b.mu.Lock()
	if p.round != b.round {
		b.mu.Unlock()
		return 0, false
	}
	pause = b.backoff.Next()
	b.state, b.until, b.shaken = paused, time.Now().Add(pause), true
	b.round++
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
	return pause, true
}

// Succeed records that the broker answered, and reports whether that ended a pause. The backoff
// starts over only when a regular call has succeeded too: a broker that takes a probe and breaks
// down under a batch is not hammered.
func (b *Breaker) Succeed(p Pass) (ended bool) {
	b.mu.Lock()
	if p.round != b.round {
		b.mu.Unlock()
		return false
	}
	if !p.Probe {
		if b.shaken {
			b.shaken = false
			b.backoff.Reset()
		}
		b.mu.Unlock()
		return false
	}
	if b.state != probing {
		b.mu.Unlock()
		return false
	}
	b.state = closed
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
	return true
}

// GiveUp takes back a pass that was not used: another worker may probe.
func (b *Breaker) GiveUp(p Pass) {
	b.mu.Lock()
	if !p.Probe || p.round != b.round || b.state != probing {
		b.mu.Unlock()
		return
	}
	b.state = paused // until has passed
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
}

// Hold lets no call pass until it is called with false.
func (b *Breaker) Hold(held bool) {
	b.mu.Lock()
	b.held = held
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
}

// Held reports whether Hold is in force.
func (b *Breaker) Held() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// RetryNow ends the current pause now: the next worker probes.
func (b *Breaker) RetryNow() {
	b.mu.Lock()
	b.until = time.Time{}
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
}

// renewLocked replaces the channel that is closed at a change; the caller closes the old one after
// unlocking.
func (b *Breaker) renewLocked() chan struct{} {
	changed := b.changed
	b.changed = make(chan struct{})
	return changed
}

// Connected reports whether calls pass.
func (b *Breaker) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == closed
}

// Demand is how many calls may be made: none while an operator holds the sink, one while it is
// paused or probed, else any number. changed is closed when the answer may be another.
func (b *Breaker) Demand() (calls int, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.held:
		return 0, b.changed
	case b.state != closed:
		return 1, b.changed
	}
	return math.MaxInt, b.changed
}
