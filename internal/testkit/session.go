package testkit

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Session is a Broker as one process sees it: a sinks.Sink.
type Session struct {
	*Broker
	process int
	dead    chan struct{} // closed when the process dies

	contract

	attempts   map[string]int     // guarded by Broker.mu
	unanswered map[string]bool    // guarded by Broker.mu: stored without an answer
	refused    map[string]*Record // guarded by Broker.mu: nil for those in the dead letters
	killed     bool               // guarded by Broker.mu
}

// Connect gives a process its sink.
func (b *Broker) Connect(process int) *Session {
	return &Session{
		Broker: b, process: process, dead: make(chan struct{}), contract: contract{busy: map[string]bool{}},
		attempts: map[string]int{}, unanswered: map[string]bool{}, refused: map[string]*Record{},
	}
}

// Kill is the end of the process: from here on nothing that it sends arrives.
func (s *Session) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.killed {
		s.killed = true
		close(s.dead)
	}
}

// Open implements sinks.Sink.
func (s *Session) Open(context.Context) error {
	attempt := s.attempt("open")
	s.opens()
	if s.OnOpen != nil {
		if err := s.OnOpen(attempt); err != nil {
			return err
		}
	}
	if c, _ := s.Condition(); c == Unreachable {
		return ErrUnreachable
	}
	s.opened()
	return nil
}

// Order implements sinks.Sink.
func (s *Session) Order() sinks.Order { return s.Unit }

// Limits implements sinks.Sink.
func (s *Session) Limits() sinks.Limits { return s.Bounds }

// Lane implements sinks.Sink.
func (s *Session) Lane(_ context.Context, e *event.Event) (string, error) {
	s.wantOpen("Lane")
	if s.OnLane != nil {
		if err := s.OnLane(e); err != nil {
			return "", err
		}
	}
	if s.Faulty && s.chance(300, "lane", e.ID, s.attempt("lane "+e.ID)) {
		return "", ErrBusy
	}
	return s.lane(e), nil
}

func (s *Session) lane(e *event.Event) string {
	if s.Unit == sinks.ByObject {
		return e.PartitionKey
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.PartitionKey))
	return fmt.Sprint("partition ", h.Sum32()%5)
}

func (s *Session) attempt(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[what]++
	return s.attempts[what]
}

// Publish implements sinks.Sink.
func (s *Session) Publish(ctx context.Context, batch []*sinks.Message) {
	lanes := s.begin(batch)
	defer s.end(lanes)
	if s.OnPublish != nil {
		s.OnPublish(ctx, batch)
	}
	s.wait(ctx, batch[0].Event)
	failed := false
	for i := range batch {
		m := batch[i]
		if s.Unit == sinks.ByObject && s.Seed != 0 { // in any order
			m = batch[(i+int(s.below(uint64(len(batch)), batch[0].Event.ID)))%len(batch)]
		}
		if failed && s.Unit == sinks.ByLane {
			m.Err = ErrBusy
			continue
		}
		m.Err = s.message(ctx, m.Event)
		failed = failed || m.Err != nil && sinks.Classify(m.Err) != sinks.Refused
	}
}

// wait is how long the broker takes.
func (s *Session) wait(ctx context.Context, first *event.Event) {
	var delay time.Duration
	if s.Seed != 0 {
		delay = time.Duration(s.below(20, "delay", first.ID)) * time.Millisecond
	}
	c, changed := s.Condition()
	if c == Slow {
		delay *= 50
	}
	if c == Healthy && delay == 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	case <-s.dead:
		return
	}
	if c == Hung {
		select {
		case <-changed:
		case <-ctx.Done():
		case <-s.dead:
		}
	}
}

// message decides about one message, and stores it.
func (s *Session) message(ctx context.Context, e *event.Event) error {
	attempt := s.attempt(e.ID)
	said := Answer{}
	if s.OnMessage != nil && ctx.Err() == nil {
		said = s.OnMessage(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.decideLocked(ctx, e, attempt, said)
	switch {
	case a.Err == nil || a.Stored:
		s.storeLocked(e, a.Err == nil)
	case sinks.Classify(a.Err) == sinks.Refused && s.refused[e.ID] == nil:
		// Its place in the stream is here, whenever it becomes a dead letter.
		s.refused[e.ID] = s.storeLocked(e, false)
		s.refused[e.ID].Dead = true
		s.unanswered[e.ID] = false
	}
	return a.Err
}

// decideLocked is the answer to a message: what the script said, unless something else is wrong.
// What is refused by chance is never stored, as little as what is too large for a broker.
func (s *Session) decideLocked(ctx context.Context, e *event.Event, attempt int, said Answer) Answer {
	about := []any{e.ID, attempt, s.process}
	refuses := s.Faulty && s.chance(60, "refused", e.ID)
	switch {
	case s.killed:
		return Answer{Err: ErrUnreachable}
	case ctx.Err() != nil:
		return Answer{ctx.Err(), !refuses && s.chance(2, about...)}
	case s.condition == Unreachable:
		return Answer{ErrUnreachable, !refuses && s.chance(8, about...)}
	case refuses:
		return Answer{Err: ErrTooLarge}
	case s.Faulty && s.chance(12, append(about, "busy")...):
		return Answer{ErrBusy, s.chance(2, about...)}
	case s.Faulty && s.chance(100, append(about, "away")...):
		return Answer{ErrUnreachable, s.chance(2, about...)}
	}
	return said
}

func (s *Session) storeLocked(e *event.Event, acked bool) *Record {
	rec := &Record{Event: *e, Process: s.process, At: time.Now(), Acked: acked, Again: s.unanswered[e.ID]}
	s.log = append(s.log, rec)
	s.unanswered[e.ID] = !acked
	return rec
}

// DeadLetter implements sinks.Sink.
func (s *Session) DeadLetter(ctx context.Context, e *event.Event, reason error, _ int) error {
	if s.OnDeadLetter != nil {
		if err := s.OnDeadLetter(e); err != nil {
			return err
		}
	}
	attempt := s.attempt("dead letter " + e.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.killed || s.condition == Unreachable:
		return ErrUnreachable
	case ctx.Err() != nil:
		return ctx.Err()
	case s.Faulty && s.chance(3, "dead letter", e.ID, attempt, s.process):
		return ErrBusy
	}
	rec, refused := s.refused[e.ID]
	if rec == nil { // or a call had the same event twice, as two lists of an epoch report it
		if !refused && s.OnLane == nil && s.OnMessage == nil && e.Err == nil {
			s.t.Errorf("%s is a dead letter, and was not refused", e.ID)
		}
		rec = s.storeLocked(e, false)
		rec.Dead = true
	}
	rec.Acked, rec.Reason = true, reason
	s.letters = append(s.letters, rec)
	s.refused[e.ID] = nil
	if s.chance(3, "no dead letters") {
		return sinks.ErrNoDeadLetter
	}
	return nil
}

// Close implements sinks.Sink.
func (s *Session) Close() error {
	s.closed()
	return nil
}
