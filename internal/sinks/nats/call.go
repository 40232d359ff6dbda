package nats

import (
	"sync"

	"github.com/kubebridge/bridge/internal/sinks"
)

// call is one Publish call that waits for answers.
type call struct {
	number uint64
	done   chan struct{} // closed when each message has its answer
	posts  []taken       // of fences, by its messages; owned by the goroutine that has begun the call

	mu       sync.Mutex // guards what follows, and the answers in the batch
	batch    []*sinks.Message
	answered []bool
	pending  int
	repeated int // acks that said duplicate
}

// answer records the answer to a message. It returns false when the message has one already.
func (c *call) answer(i int, a ack) bool {
	c.mu.Lock()
	if i >= len(c.answered) || c.answered[i] || c.pending == 0 {
		c.mu.Unlock()
		return false
	}
	c.answered[i] = true
	c.batch[i].Err = a.err
	if a.kind == duplicate {
		c.repeated++
	}
	c.pending--
	finished := c.pending == 0
	c.mu.Unlock()
	if finished {
		close(c.done)
	}
	return true
}

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

// duplicates is how many messages the stream had already.
func (c *call) duplicates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.repeated
}
