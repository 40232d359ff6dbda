package publisher

import (
	"context"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// breaker pauses a whole sink while its broker can't be reached. After the pause one worker gets a
// probe; its answer ends the pause or starts a longer one. N lanes that fail for one reason so cost
// one attempt per pause, not N.
type breaker struct {
	mu    sync.Mutex
	state state     // guarded by mu
	until time.Time // guarded by mu: end of the pause
	// guarded by mu: counts the pauses, so that answers from before one are told apart
	round   int
	backoff ratelimit.Backoff // guarded by mu
	shaken  bool              // guarded by mu: no regular call has succeeded since the last pause
	// guarded by mu: an operator holds the sink; nobody passes, whatever the state is
	held    bool
	changed chan struct{} // guarded by mu: closed and replaced at every change of state or until
}

type state int

const (
	closed  state = iota // calls pass
	paused               // nobody passes before until
	probing              // one worker is trying
)

// pass is the permission for one round of calls.
type pass struct {
	round int
	probe bool // send one message only, and report
}

func newBreaker(retry Retry) *breaker {
	return &breaker{
		backoff: ratelimit.Backoff{Initial: retry.Initial, Max: retry.Max},
		changed: make(chan struct{}),
	}
}

// enter blocks while the sink is paused, and returns ctx's error when it ends.
func (b *breaker) enter(ctx context.Context) (pass, error) {
	for {
		got, ok, wait, changed := b.try()
		if ok {
			return got, nil
		}
		if err := ratelimit.SleepOr(ctx, wait, changed); err != nil {
			return pass{}, err
		}
	}
}

// try takes a pass, or says how long to wait for one: negative for until something changes.
func (b *breaker) try() (got pass, ok bool, wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held {
		return pass{}, false, -1, b.changed
	}
	switch b.state {
	case closed:
		return pass{round: b.round}, true, 0, nil
	case probing:
		return pass{}, false, -1, b.changed
	case paused:
	}
	if wait = time.Until(b.until); wait > 0 {
		return pass{}, false, wait, b.changed
	}
	b.state = probing
	return pass{round: b.round, probe: true}, true, 0, nil
}

// trip starts a pause and returns its length: after an answer that the broker can't be reached. An
// answer from before the current pause changes nothing.
func (b *breaker) trip(p pass) (pause time.Duration, tripped bool) {
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

// succeed notes that the broker answered, and reports whether that ended a pause. The backoff
// starts over only when a regular call has succeeded too: a broker that takes a probe and breaks
// down under a batch is not hammered.
func (b *breaker) succeed(p pass) (ended bool) {
	b.mu.Lock()
	if p.round != b.round {
		b.mu.Unlock()
		return false
	}
	if !p.probe {
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

// giveUp takes a pass back that was not used: another worker may probe.
func (b *breaker) giveUp(p pass) {
	b.mu.Lock()
	if !p.probe || p.round != b.round || b.state != probing {
		b.mu.Unlock()
		return
	}
	b.state = paused // until has passed
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
}

// hold lets nobody pass until it is called with false.
func (b *breaker) hold(held bool) {
	b.mu.Lock()
	b.held = held
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
}

// isHeld reports whether hold is in force.
func (b *breaker) isHeld() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// hurry ends the current pause now: the next worker probes.
func (b *breaker) hurry() {
	b.mu.Lock()
	b.until = time.Time{}
	changed := b.renewLocked()
	b.mu.Unlock()
	close(changed)
}

// renewLocked replaces the channel that tells of changes; the caller closes the old one after
// unlocking.
func (b *breaker) renewLocked() chan struct{} {
	changed := b.changed
	b.changed = make(chan struct{})
	return changed
}

// connected reports whether calls pass.
func (b *breaker) connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == closed
}
