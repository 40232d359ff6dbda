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
	done   chan struct{} // closed when each message has its answer
	posts  []takenPost   // of fences, by its messages; owned by the goroutine that has begun the call

	mu       sync.Mutex // guards what follows, and the answers in the batch
	batch    []*sinks.Message
	sent     []sending // of the messages that were written so far, or refused before
	answered []bool
	pending  int
	repeats  []repeat
}

// sending is what is known of a message when it is written.
type sending struct {
	stream *stream // nil for a stream that is nobody's matter
	after  uint64  // the last sequence of the stream then: the message gets a higher one
}

// repeat is an ack that says duplicate.
type repeat struct {
	message int
	seq     uint64
}

// aboutToSend is called before a message is written: an answer that comes earlier is forged.
func (c *call) aboutToSend(st *stream) {
	in := sending{stream: st}
	if st != nil {
		in.after = st.last.Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, in)
}

// outcome of an answer.
type outcome int

const (
	taken     outcome = iota
	late              // the message has its answer
	foreign           // it is not of the message's stream, or not possible
	unordered         // the stream does not go on where it was: taken as Retry
)

// String is the outcome as a metric label.
func (v outcome) String() string { return [...]string{"taken", "late", "foreign", "unordered"}[v] }

// maxAhead is by how much a stream's sequence may be ahead of what this process knows.
const maxAhead = 1_000_000_000

// answer records the answer to a message, if it is one.
func (c *call) answer(i int, a ack) outcome {
	c.mu.Lock()
	if i >= len(c.answered) || c.answered[i] || c.pending == 0 {
		c.mu.Unlock()
		return late
	}
	outcome := c.judge(i, &a)
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

// judge compares an answer with what is known of the message's stream. Whoever may read the events
// sees where their answers go, and may be faster than the server.
func (c *call) judge(i int, a *ack) outcome {
	if i >= len(c.sent) {
		return foreign
	}
	in := c.sent[i]
	switch {
	case a.kind == failed || in.stream == nil:
		return taken
	case a.stream != in.stream.name || a.seq > in.stream.last.Load()+maxAhead:
		return foreign
	case a.kind == stored && a.seq <= in.after:
		in.stream.doubtful.Store(true)
		*a = failedWith(&sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("%w: %d is not behind %d", errUnordered, a.seq, in.after)})
		return unordered
	case a.kind == stored:
		in.stream.reached(a.seq)
	}
	return taken
}

// errUnordered is an ack with a sequence that the stream has passed: it is forged, or the one before
// was, or the stream was made anew.
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

// over says whether every message has its answer.
func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
