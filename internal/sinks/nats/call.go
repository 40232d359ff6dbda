package nats

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kubebridge/bridge/internal/sinks"
)

// call is one Publish call that waits for answers.
type call struct {
	number uint64
	inbox  *inbox
	done   chan struct{} // closed when each message has its answer
	// of fences, used by its messages; owned by the goroutine that registered the call
	fenceSubjects []reservedSubject

	mu       sync.Mutex // guards the fields below, and the answers in the batch
	batch    []*sinks.Message
	sent     []sending // of the messages that were written so far, or refused before
	answered []bool
	pending  int
	repeats  []repeat
}

// sending is what is known of a message when it is written.
type sending struct {
	stream *stream // nil when the stream is not managed
	after  uint64  // the last sequence of the stream then: the message gets a higher one
}

// repeat is an ack that says duplicate.
type repeat struct {
	message int
	seq     uint64
}

// aboutToSend is called before a message is written: an earlier answer is forged.
func (c *call) aboutToSend(st *stream) {
	in := sending{stream: st}
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
		c.repeats = append(c.repeats, repeat{i, a.seq})
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

// finished reports whether every message has its answer.
func (c *call) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
