package nats

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Ids of messages can be known before: whoever may publish to the stream can send a message with the
// id of an event to come, and the stream drops the event as a duplicate. So an ack that says duplicate
// when this process sends an event for the first time is looked at: an earlier process has sent it, or
// somebody hides it. What ends an object is read back, since nothing later would make up for it.

// Origins of what the stream held before this process sent it.
const (
	originUnchecked = "unchecked"
	originChecked   = "checked"
	originForged    = "forged"
)

// againToken comes before the end of the id of a message that was sent although the stream had one
// under its own id. What follows is random.
const againToken = "/again/"

// repeats remembers what was found forged, until it is stored.
type repeats struct {
	mu     sync.Mutex
	forged map[string]bool // guarded by mu: message ids
	warned time.Time       // guarded by mu
}

// checkRepeats looks at the acks of a call that say duplicate.
func (s *Sink) checkRepeats(ctx context.Context, batch []*sinks.Message, found []repeat, to route) {
	for _, r := range found {
		m := batch[r.message]
		id := to.id(m.Event)
		if m.Err != nil || s.doubts.has(id) && !s.repeats.isForged(id) {
			continue
		}
		origin := originUnchecked
		if st := s.streamOf(m.Event); m.Event.Op == event.Deleted && st != nil {
			origin = s.originOf(ctx, m.Event, to, st, r.seq)
		}
		s.metrics.unexpected.WithLabelValues(origin).Inc()
		s.warnRepeat(id, origin)
		if origin == originForged {
			s.sendAgain(ctx, m, to)
		}
	}
}

// originOf reads the message that the stream has in an event's place.
func (s *Sink) originOf(ctx context.Context, e *event.Event, to route, st *stream, seq uint64) string {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	js, err := s.jetStream(s.conn)
	if err != nil {
		return originUnchecked
	}
	there, err := js.Stream(ctx, st.name)
	if err != nil {
		return originUnchecked
	}
	m, err := there.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return originForged // or deleted meanwhile; the event is stored again then
	case err != nil:
		return originUnchecked
	}
	enc := encoders.Get().(*encoder)
	defer enc.release()
	enc.encode(e, to, s.cfg.Encoding, nil)
	want := enc.message()
	same := m.Subject == want.Subject && bytes.Equal(m.Data, want.Data) &&
		m.Header.Get(nats.MsgIdHdr) == want.Header.Get(nats.MsgIdHdr) && m.Header.Get("ce-type") == headerOf(want, "ce-type")
	if same {
		return originChecked
	}
	return originForged
}

// headerOf is a header as it was set: the keys of the encoder's messages are not in canonical form.
func headerOf(m *nats.Msg, key string) string {
	if values := m.Header[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// sendAgain stores an event under an id that nobody knows before. Its CloudEvents id stays.
func (s *Sink) sendAgain(ctx context.Context, m *sinks.Message, to route) {
	id := to.id(m.Event)
	to.idSuffix += againToken + rand.Text()
	m.Err = nil
	s.send(ctx, []*sinks.Message{m}, to)
	s.repeats.mark(id, m.Err != nil)
}

// mark notes whether a message has still to be sent again.
func (r *repeats) mark(id string, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !open {
		delete(r.forged, id)
		return
	}
	if r.forged == nil {
		r.forged = map[string]bool{}
	}
	r.forged[id] = true
}

func (r *repeats) isForged(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forged[id]
}

// warnRepeat tells of a repeat that was not expected: forged ones each, others once in a while.
func (s *Sink) warnRepeat(id, origin string) {
	const every = 30 * time.Second
	r := &s.repeats
	r.mu.Lock()
	silent := origin != originForged && time.Since(r.warned) < every
	if !silent {
		r.warned = time.Now()
	}
	r.mu.Unlock()
	if !silent {
		s.log.Warn("the stream held a message under this id before this process sent it: an earlier process did, or somebody else publishes to the stream",
			"id", id, "origin", origin)
	}
}

// strippedID is the message id of an event whose message has another one: a dead letter, so that it
// is no duplicate of the event, or one that was sent again under an id of its own.
func strippedID(id, suffix string) string {
	id, _, _ = strings.Cut(id, againToken)
	return strings.TrimSuffix(id, suffix)
}

// resolveDoubts asks the streams of a batch where they are when an ack contradicted what was known.
func (s *Sink) resolveDoubts(ctx context.Context, batch []*sinks.Message) error {
	for _, m := range batch {
		st := s.streamOf(m.Event)
		if st == nil || !st.doubtful.Load() {
			continue
		}
		js, err := s.jetStream(s.conn)
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
		found, err := js.Stream(limited, st.name)
		cancel()
		if err != nil {
			return fmt.Errorf("ask where stream %s is: %w", st.name, err)
		}
		st.last.Store(found.CachedInfo().State.LastSeq)
		st.doubtful.Store(false)
		s.log.Warn("an ack contradicted what was known of the stream: forged, or the stream was made anew", "stream", st.name, "last_sequence", st.last.Load())
	}
	return nil
}
