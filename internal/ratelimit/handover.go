package ratelimit

import (
	"context"
	"sync"
)

// Spot is where one consumer waits; the table of its states is in doc.go. The consumer calls Wait
// and Park, any number of producers call Offer.
type Spot struct {
	wake chan struct{} // of one slot: the consumer's Wait returns

	mu     sync.Mutex
	state  spotState   // guarded by mu
	step   func() bool // guarded by mu: of the Wait that has not returned, or of Park
	resume func()      // guarded by mu: of Park; nil in Wait
	token  bool        // guarded by mu: an Offer that no step has seen
	ended  bool        // guarded by mu: Wait's context has ended while its step runs
}

type spotState uint8

const (
	away    spotState = iota // the consumer is at work
	waiting                  // it is in Wait, or parked
	running                  // the same, and a producer runs its step
)

// NewSpot makes a Spot.
func NewSpot() *Spot { return &Spot{wake: make(chan struct{}, 1)} }

// Wait lets producers run step until step returns false. Then Wait returns nil: the consumer has to
// look itself. It returns at once where an Offer came since the last Wait. When ctx ends it returns
// its cause, but not while step runs. A step must never wait for anything: no network, no disk
// write, no room, no channel.
func (s *Spot) Wait(ctx context.Context, step func() bool) error {
	s.mu.Lock()
	if s.token {
		s.token = false
		s.mu.Unlock()
		return nil
	}
	s.state, s.step = waiting, step
	s.mu.Unlock()
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
	}
	if !s.leave() {
		<-s.wake
	}
	return context.Cause(ctx)
}

// Park is Wait without a goroutine. It returns at once; when a step returns false, resume runs on a
// new goroutine. It reports false, and does nothing, where an Offer came since the last Wait or
// Park: the consumer has to look itself. Park knows no context: when one ends, call Offer, and let
// the step return false.
//
// A goroutine that waits keeps its stack, of 4 KB and more. With "*" there are hundreds of
// consumers that wait for hours.
func (s *Spot) Park(step func() bool, resume func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token {
		s.token = false
		return false
	}
	s.state, s.step, s.resume = waiting, step, resume
	return true
}

// leave ends the wait. It reports false when a producer runs the step or has ended the wait: then
// the producer wakes the consumer.
func (s *Spot) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == waiting {
		s.state, s.step = away, nil
		return true
	}
	s.ended = s.state == running
	return false
}

// Offer runs the step of a waiting consumer, and returns when the step has. Where the consumer does
// not wait, or another producer runs its step, it is only remembered that there is work.
func (s *Spot) Offer() {
	s.mu.Lock()
	if s.state != waiting {
		s.token = true
		s.mu.Unlock()
		return
	}
	s.state = running
	step := s.step
	for done := false; !done; {
		s.token = false
		s.mu.Unlock()
		more := step()
		s.mu.Lock()
		done = s.endStepLocked(more)
	}
	s.mu.Unlock()
}

// endStepLocked decides what follows a step. It reports false where another step follows, for work
// that was offered meanwhile.
func (s *Spot) endStepLocked(more bool) bool {
	switch {
	case !more, s.ended:
		s.wakeLocked()
		return true
	case s.token:
		return false
	}
	s.state = waiting
	return true
}

// wakeLocked has the consumer look itself.
func (s *Spot) wakeLocked() {
	resume := s.resume
	s.state, s.step, s.resume, s.ended = away, nil, nil, false
	if resume != nil {
		go resume()
		return
	}
	s.wake <- struct{}{} // there is room: one Wait is woken once
}

// Signal notifies one part that another has found something, whatever the first one waits for. The
// code that connects the two parts owns it, so neither knows the other. A nil Signal is never set.
// All methods may be called concurrently.
type Signal struct {
	mu    sync.Mutex
	isSet bool   // guarded by mu
	wake  func() // guarded by mu; nil while it is not watched
}

// Set sets the signal, and calls the wake of Watch.
func (s *Signal) Set() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.isSet = true
	wake := s.wake
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Watch has wake called whenever the signal is set, until end is called. wake runs on the goroutine
// that sets the signal, so it must not block. Check IsSet before waiting for wake.
func (s *Signal) Watch(wake func()) (end func()) {
	if s == nil {
		return func() {}
	}
	s.watch(wake)
	return func() { s.watch(nil) }
}

func (s *Signal) watch(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = wake
}

// IsSet reports whether the signal was set since the last Reset.
func (s *Signal) IsSet() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isSet
}

// Reset resets the signal, and reports whether it was set.
func (s *Signal) Reset() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.isSet
	s.isSet = false
	return was
}

// WaitCond waits on c until ready reports true, or returns ctx's cause when ctx ends first. The
// caller holds c's lock; ready is called with the lock held. A change of the fields that ready
// reads is followed by c.Broadcast.
//
// It is for a condition over several fields: room, a slow disk, a drain, or the next change of a
// listener of the newest states. A channel in place of the sync.Cond would have to be closed and
// made again at each change of a field, or count its waiters. That costs an allocation or a field
// for changes that nobody awaits.
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
