package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// broker is where the events of one sink go: a log in memory that outlives the bridge, with faults.
type broker struct {
	name   string
	seed   uint64
	order  sinks.Order
	limits sinks.Limits
	faulty bool // answers of single messages fail at random

	mu      sync.Mutex
	log     []*record     // guarded by mu
	mood    mood          // guarded by mu
	changed chan struct{} // guarded by mu: closed and replaced when the mood changes

	seen int // records that expect has looked at; owned by the test
}

// record is one message that a broker took.
type record struct {
	event.Event
	run   int // of the bridge
	at    time.Time
	acked bool // the bridge was told; settles what was refused too
	dead  bool // in the dead letters, or dropped because there are none
	again bool // sent again in the same run, because the bridge was not told
}

// mood is what is wrong with a broker as a whole.
type mood string

const (
	calm mood = "calm"
	away mood = "away" // can't be reached
	hung mood = "hung" // takes messages and does not answer
	slow mood = "slow"
)

var (
	errBusy   = &sinks.Error{Class: sinks.Retry, Err: errors.New("busy")}
	errAway   = &sinks.Error{Class: sinks.Reconnect, Err: errors.New("no route to broker")}
	errTooBig = &sinks.Error{Class: sinks.Refused, Err: errors.New("too large")}
)

func newBroker(name string, seed uint64, order sinks.Order, limits sinks.Limits) *broker {
	return &broker{name: name, seed: seed, order: order, limits: limits, mood: calm, changed: make(chan struct{})}
}

func (b *broker) set(m mood) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mood = m
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *broker) now() (mood, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mood, b.changed
}

// records is the log so far.
func (b *broker) records() []*record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clip(b.log)
}

// chance reports whether something happens, one time in n. It depends on the seed and on what it is
// about and on nothing else, so that a run can be repeated however goroutines are scheduled.
func (b *broker) chance(n uint64, about ...any) bool { return b.below(n, about...) == 0 }

func (b *broker) below(n uint64, about ...any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, b.seed, b.name, about)
	return h.Sum64() >> 7 % n
}

// session is a broker as one run of the bridge sees it.
type session struct {
	*broker
	run  int
	dead chan struct{} // closed when the process dies

	attempts map[string]int     // guarded by broker.mu
	untold   map[string]bool    // guarded by broker.mu: stored without an answer
	refused  map[string]*record // guarded by broker.mu: not in the dead letters yet
	killed   bool               // guarded by broker.mu
}

func (b *broker) connect(run int) *session {
	return &session{broker: b, run: run, dead: make(chan struct{}), attempts: map[string]int{}, untold: map[string]bool{}, refused: map[string]*record{}}
}

// kill is the end of the process: from here on nothing that it sends arrives.
func (s *session) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.killed {
		s.killed = true
		close(s.dead)
	}
}

// Open implements sinks.Sink.
func (s *session) Open(context.Context) error {
	if m, _ := s.now(); m == away {
		return errAway
	}
	return nil
}

// Order implements sinks.Sink.
func (s *session) Order() sinks.Order { return s.order }

// Limits implements sinks.Sink.
func (s *session) Limits() sinks.Limits { return s.limits }

// Close implements sinks.Sink.
func (s *session) Close() error { return nil }

// Lane implements sinks.Sink.
func (s *session) Lane(_ context.Context, e *event.Event) (string, error) {
	if s.faulty && s.chance(300, "lane", e.ID, s.attempt("lane "+e.ID)) {
		return "", errBusy
	}
	if s.order == sinks.ByObject {
		return e.PartitionKey, nil
	}
	return fmt.Sprint("partition ", s.below(3, e.PartitionKey)), nil
}

func (s *session) attempt(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[what]++
	return s.attempts[what]
}

// Publish implements sinks.Sink.
func (s *session) Publish(ctx context.Context, batch []*sinks.Message) {
	s.wait(ctx, batch[0].Event)
	failed := false
	for i := range batch {
		m := batch[i]
		if s.order == sinks.ByObject { // in any order
			m = batch[(i+int(s.below(uint64(len(batch)), batch[0].Event.ID)))%len(batch)]
		}
		if failed && s.order == sinks.ByLane {
			m.Err = errBusy
			continue
		}
		m.Err = s.take(ctx, m.Event)
		failed = failed || m.Err != nil && sinks.Classify(m.Err) != sinks.Refused
	}
}

// wait is how long the broker takes.
func (s *session) wait(ctx context.Context, first *event.Event) {
	delay := time.Duration(s.below(20, "delay", first.ID)) * time.Millisecond
	m, changed := s.now()
	if m == slow {
		delay *= 50
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if m == hung {
				select {
				case <-changed:
				case <-ctx.Done():
				case <-s.dead:
				}
			}
			return
		case <-ctx.Done():
			return
		case <-s.dead:
			return
		}
	}
}

// take decides about one message, and stores it.
func (s *session) take(ctx context.Context, e *event.Event) error {
	attempt := s.attempt(e.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	about := []any{e.ID, attempt, s.run}
	answer, stored := error(nil), true
	switch {
	case s.killed:
		return errAway
	case ctx.Err() != nil:
		answer, stored = ctx.Err(), s.chance(2, about...)
	case s.mood == away:
		answer, stored = errAway, s.chance(8, about...)
	case s.faulty && s.chance(60, "refused", e.ID):
		if s.refused[e.ID] == nil { // its place in the stream is here, whenever it is buried
			s.refused[e.ID] = s.storeLocked(e, false)
			s.refused[e.ID].dead = true
			s.untold[e.ID] = false
		}
		return errTooBig
	case s.faulty && s.chance(12, append(about, "busy")...):
		answer, stored = errBusy, s.chance(2, about...)
	case s.faulty && s.chance(100, append(about, "away")...):
		answer, stored = errAway, s.chance(2, about...)
	}
	if stored {
		if rec := s.refused[e.ID]; rec != nil { // it was in no dead letters yet, and is taken now
			s.log = slices.DeleteFunc(s.log, func(r *record) bool { return r == rec })
			delete(s.refused, e.ID)
		}
		s.storeLocked(e, answer == nil)
	}
	return answer
}

func (s *session) storeLocked(e *event.Event, acked bool) *record {
	rec := &record{Event: *e, run: s.run, at: time.Now(), acked: acked, again: s.untold[e.ID]}
	s.log = append(s.log, rec)
	s.untold[e.ID] = !acked
	return rec
}

// DeadLetter implements sinks.Sink.
func (s *session) DeadLetter(ctx context.Context, e *event.Event, _ error, _ int) error {
	attempt := s.attempt("dead letter " + e.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.killed || s.mood == away:
		return errAway
	case ctx.Err() != nil:
		return ctx.Err()
	case s.faulty && s.chance(3, "dead letter", e.ID, attempt, s.run):
		return errBusy
	}
	s.refused[e.ID].acked = true
	delete(s.refused, e.ID)
	if s.chance(3, "no dead letters") {
		return sinks.ErrNoDeadLetter
	}
	return nil
}
