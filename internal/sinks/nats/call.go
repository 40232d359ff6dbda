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
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// call is one Publish call that waits for answers.
type call struct {
	number uint64
	inbox  *inbox
	to     route
	done   chan struct{} // closed when each message has its answer
	// of fences, used by its messages; owned by the goroutine that registered the call
	fenceSubjects []reservedSubject

	mu       sync.Mutex // guards the fields below, and the answers in the batch
	batch    []*sinks.Message
	sent     []sentMessage // of the messages that were written so far, or refused before
	answered []bool
	pending  int
	repeats  []duplicateAck
}

// sentMessage is what is known of a message when it is written.
type sentMessage struct {
	stream *stream // nil when the stream is not managed
	after  uint64  // the last sequence of the stream then: the message gets a higher one
}

// duplicateAck is an ack that says duplicate.
type duplicateAck struct {
	message int
	seq     uint64
}

// aboutToSend is called before a message is written: an earlier answer is forged.
func (c *call) aboutToSend(st *stream) {
	in := sentMessage{stream: st}
	if st != nil {
		in.after = st.last.Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, in)
}

// ackOutcome is what became of an answer.
type ackOutcome int

const (
	accepted  ackOutcome = iota
	late                 // the message was answered before
	foreign              // it is not of the message's stream, or not possible
	unordered            // a sequence that the stream has passed: answered as Retry
)

// String is the metric label.
func (v ackOutcome) String() string {
	return [...]string{
		"taken", "late", "foreign",
		"unordered",
	}[v]
}

// maxAhead bounds how far a stream's sequence may be ahead of what this process knows.
const maxAhead = 1_000_000_000

// answer records the answer to a message, if it is one.
func (c *call) answer(i int, a ack) ackOutcome {
	c.mu.Lock()
	if i >= len(c.answered) || c.answered[i] || c.pending == 0 {
		c.mu.Unlock()
		return late
	}
	outcome := c.check(i, &a)
	if outcome == foreign {
		c.mu.Unlock()
		return outcome
	}
	c.answered[i] = true
	c.batch[i].Err = a.err
	if a.kind == duplicate {
		c.repeats = append(c.repeats, duplicateAck{i, a.seq})
	}
	c.pending--
	finished := c.pending == 0
	c.mu.Unlock()
	if finished {
		close(c.done)
	}
	return outcome
}

// check compares an answer with what is known of the message's stream. Whoever may read the events
// sees the reply subjects, and may forge an answer faster than the server answers.
func (c *call) check(i int, a *ack) ackOutcome {
	if i >= len(c.sent) {
		return foreign
	}
	in := c.sent[i]
	switch {
	case a.kind == failed || in.stream == nil:
		return accepted
	case a.stream != in.stream.name || a.seq > in.stream.last.Load()+maxAhead:
		return foreign
	case a.kind == stored && a.seq <= in.after:
		in.stream.doubtful.Store(true)
		*a = failedWith(&sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("%w: %d is not behind %d",
			errUnordered, a.seq, in.after)})
		return unordered
	case a.kind == stored:
		in.stream.reached(a.seq)
	}
	return accepted
}

// answerStored answers the message with an id, if the call has it and sent it: a late ack of an
// earlier attempt says that it is stored. The stream drops this attempt by its id.
func (c *call) answerStored(id string) {
	c.mu.Lock()
	var finished bool
	for i := range c.sent {
		if c.pending > 0 && !c.answered[i] && c.to.id(c.batch[i].Event) == id {
			c.answered[i], c.batch[i].Err = true, nil
			c.pending--
			finished = c.pending == 0
		}
	}
	c.mu.Unlock()
	if finished {
		close(c.done)
	}
}

// errUnordered is an ack with a sequence that the stream has passed: this ack is forged, or an
// earlier one was, or the stream was recreated.
var errUnordered = errors.New("the stream acknowledges with a sequence that it has passed")

// fail gives the same answer to every message that has none.
func (c *call) fail(err error) {
	c.mu.Lock()
	if c.pending == 0 {
		c.mu.Unlock()
		return
	}
	c.pending = 0
	for i, m := range c.batch {
		if !c.answered[i] {
			m.Err = err
		}
	}
	c.mu.Unlock()
	close(c.done)
}

// forbidden answers the messages to a subject that were written so far.
func (c *call) forbidden(subject string, err error) {
	var found []int
	var text []byte
	c.mu.Lock()
	for i := range c.sent {
		if c.answered[i] || c.pending == 0 {
			continue
		}
		text = c.to.appendSubject(text[:0], c.batch[i].Event)
		if string(text) == subject {
			found = append(found, i)
		}
	}
	c.mu.Unlock()
	for _, i := range found {
		c.answer(i, failedWith(forbidden(err)))
	}
}

// forbidden is the answer to a message to whose subject the user may not publish.
func forbidden(err error) error {
	return &sinks.Error{
		Class: sinks.Retry, Err: fmt.Errorf("%w; grant the bridge's user to publish there", err),
	}
}

// finished reports whether every message has its answer.
func (c *call) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Ids of messages are predictable. Whoever may publish to the stream can send a message with the id
// of a later event, and the stream drops the event as a duplicate. So an ack that says duplicate
// when this process sends an event for the first time is checked: an earlier process has sent it,
// or somebody hides it. The last event of an object is read back, since nothing later would correct
// the loss.

// Origins of what the stream had before this process sent it.
const (
	originUnchecked = "unchecked"
	originChecked   = "checked"
	originForged    = "forged"
	originReplaced  = "replaced" // what the stream remembers is not there any more
)

// againToken comes before the end of the id of a message that was sent although the stream had one
// under its own id. A random text follows.
const againToken = "/again/"

// forgedMessages remembers forged messages until the event is stored.
type forgedMessages struct {
	mu     sync.Mutex
	forged map[string]bool // guarded by mu: message ids
	warned time.Time       // guarded by mu
}

// checkRepeats checks the acks of a call that say duplicate.
func (s *Sink) checkRepeats(ctx context.Context, batch []*sinks.Message, found []duplicateAck, to route) {
	for _, r := range found {
		m := batch[r.message]
		id := to.id(m.Event)
		if m.Err != nil || s.inDoubt.has(id) && !s.repeats.isForged(id) {
			continue
		}
		origin := originUnchecked
		if st := s.streamOf(m.Event); st != nil && (m.Event.Op == event.Deleted ||
			s.cfg.Mode == KV) {
			origin = s.originOf(ctx, m.Event, to, st, r.seq)
		}
		s.metrics.unexpected.With(origin).Inc()
		s.warnRepeat(id, origin)
		if origin == originForged || origin == originReplaced {
			s.resendForged(ctx, m, to)
		}
	}
}

// originOf finds out whose message the stream has under an event's id. A question without an answer
// is asked again, but not forever: the user may lack the right, or the server never answers.
func (s *Sink) originOf(
	ctx context.Context, e *event.Event, to route, st *stream, seq uint64,
) string {
	const attempts = 3
	var err error
	for range attempts {
		var origin string
		if origin, err = s.compareStored(ctx, e, to, st, seq); err == nil {
			return origin
		}
		if s.missingRight(getRights) != nil || ctx.Err() != nil {
			break
		}
	}
	if stack := event.StackOf(err); stack != "" {
		s.log.Error("a panic at a message that the stream holds under an event's id", "id", e.ID,
			"err", err.Error(), "stack", stack)
	}
	return originUnchecked
}

// compareStored compares the message that the stream has with what the event's own would be.
func (s *Sink) compareStored(
	ctx context.Context, e *event.Event, to route, st *stream, seq uint64,
) (origin string, err error) {
	defer sinks.RecoverAnswer(&err)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	js, err := s.jetStream(s.conn)
	if err != nil {
		return "", err
	}
	there, err := js.Stream(ctx, st.name)
	if err != nil {
		return "", err
	}
	m, err := messageOf(ctx, there, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound) &&
		(s.cfg.Mode == KV || seq < there.CachedInfo().State.FirstSeq):
		return originReplaced, nil // somebody has purged the stream
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return originForged, nil // or deleted meanwhile; then the event is stored again
	case err != nil:
		return "", err
	}
	enc := encoders.Get().(*encoder)
	defer enc.release()
	enc.encode(e, to, s.cfg.Encoding, nil)
	want := enc.message()
	same := m.Subject == want.Subject && bytes.Equal(m.Data, want.Data) &&
		m.Header.Get(nats.MsgIdHdr) == want.Header.Get(nats.MsgIdHdr) &&
		m.Header.Get("ce-type") == headerOf(want, "ce-type")
	if same {
		return originChecked, nil
	}
	return originForged, nil
}

// messageOf returns the message of a sequence. Each replica may answer, also one that does not have
// it yet: only a later message shows that there is none. It asks again while ctx lasts; then the
// event is rather stored twice than not at all.
func messageOf(
	ctx context.Context, there jetstream.Stream, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	const pause = 50 * time.Millisecond
	cfg := there.CachedInfo().Config
	for {
		m, err := there.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">")) // or a later one
		if err == nil && m.Sequence > seq {
			return nil, jetstream.ErrMsgNotFound
		}
		isBehind := errors.Is(err, jetstream.ErrMsgNotFound) && cfg.AllowDirect && cfg.Replicas > 1
		if !isBehind || ratelimit.Sleep(ctx, pause) != nil {
			return m, err
		}
	}
}

// headerOf returns a header as it was set: the keys of the encoder's messages are not in canonical
// form.
func headerOf(m *nats.Msg, key string) string {
	if values := m.Header[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// resendForged stores an event under an unpredictable id. Its CloudEvents id stays.
func (s *Sink) resendForged(ctx context.Context, m *sinks.Message, to route) {
	id := to.id(m.Event)
	to.idSuffix += againToken + rand.Text()
	m.Err = nil
	s.send(ctx, []*sinks.Message{m}, to)
	s.repeats.setForged(id, m.Err != nil)
}

// setForged records whether a message has still to be sent again.
func (r *forgedMessages) setForged(id string, open bool) {
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

func (r *forgedMessages) isForged(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forged[id]
}

// warnRepeat logs an unexpected duplicate: each forged one, others once in a while.
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
		s.log.Warn("the stream held a message under this id before this process sent it: an "+
			"earlier process did, or somebody else publishes to the stream",
			"id", id, "origin", origin)
	}
}

// baseID returns the message id of an event whose message has another one: a dead letter, so that
// it is no duplicate of the event, or one that was sent again under an id of its own.
func baseID(id, suffix string) string {
	id, _, _ = strings.Cut(id, againToken)
	return strings.TrimSuffix(id, suffix)
}

// resyncStreams reads the last sequence of the batch's streams again when an ack contradicted what
// was known.
func (s *Sink) resyncStreams(ctx context.Context, batch []*sinks.Message) error {
	for _, m := range batch {
		st := s.streamOf(m.Event)
		if st == nil || !st.doubtful.Load() {
			continue
		}
		info, err := s.streamInfo(ctx, st)
		if err != nil {
			return fmt.Errorf("read the last sequence of stream %s: %w", st.name, err)
		}
		if !info.Created.Equal(st.created) {
			s.replaceStream(ctx, st)
			continue
		}
		st.last.Store(info.State.LastSeq)
		st.doubtful.Store(false)
		s.log.Warn("an ack contradicted what is known of the stream: it was forged, or the stream "+
			"was restored from a copy", "stream", st.name, "last_sequence", st.last.Load())
	}
	return nil
}
