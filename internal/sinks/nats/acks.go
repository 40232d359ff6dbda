package nats

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks"
)

// acks brings the answers of the server to the Publish calls that wait for them. The reply subject
// of a message is <inbox>.<call>-<message>, both in base 36. The number of a call is its slot in
// the table. Numbers are never reused, so the number is also the slot's generation: a late ack of a
// call that has ended finds another number in the slot, or none.
type acks struct {
	inbox   string // set by Open, before anything is published
	metrics *metrics

	last    atomic.Uint64 // number of the newest call
	slots   [256]atomic.Pointer[call]
	tickets chan struct{} // one for each running call, so that a slot is always free
}

func newAcks(m *metrics) *acks {
	a := &acks{metrics: m}
	a.tickets = make(chan struct{}, len(a.slots)/2)
	return a
}

// register adds a call, so that its acks and a broken connection find it. It waits only when half
// of all slots are in use.
func (a *acks) register(ctx context.Context, batch []*sinks.Message) (*call, error) {
	select {
	case a.tickets <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &call{
		batch: batch, done: make(chan struct{}), pending: len(batch),
		sent: make([]sending, 0, len(batch)), answered: make([]bool, len(batch)),
	}
	for { // a call that lasts longer than 256 others still holds its slot
		c.number = a.last.Add(1)
		if a.slot(c.number).CompareAndSwap(nil, c) {
			return c, nil
		}
	}
}

func (a *acks) unregister(c *call) {
	a.slot(c.number).CompareAndSwap(c, nil)
	<-a.tickets
}

func (a *acks) slot(number uint64) *atomic.Pointer[call] {
	return &a.slots[number%uint64(len(a.slots))]
}

// failAll answers every message that waits. The connection broke: whether the message is stored is
// unknown.
func (a *acks) failAll(err error) {
	for i := range a.slots {
		if c := a.slots[i].Load(); c != nil {
			c.fail(err)
		}
	}
}

// appendReply appends the subject for the ack of message i.
func (a *acks) appendReply(dst []byte, c *call, i int) []byte {
	dst = append(dst, a.inbox...)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, c.number, 36)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, uint64(i), 36)
}

// receive is called for everything that arrives on the inbox, by one goroutine.
func (a *acks) receive(m *nats.Msg) {
	c, i := a.find(m.Subject)
	if c == nil {
		a.metrics.strayAcks.WithLabelValues("late").Inc()
		return
	}
	ack := parseAck(m)
	outcome := foreign // the stream's answer is still to come
	if ack.kind != notAnAck {
		outcome = c.answer(i, ack)
	}
	if outcome != accepted {
		a.metrics.strayAcks.WithLabelValues(outcome.String()).Inc()
	}
}

// find returns the call and the message that a reply subject names; nil when the call has ended.
func (a *acks) find(subject string) (c *call, i int) {
	token := strings.TrimPrefix(subject, a.inbox+".")
	callText, messageText, ok := strings.Cut(token, "-")
	if !ok {
		return nil, 0
	}
	number, err := strconv.ParseUint(callText, 36, 64)
	if err != nil {
		return nil, 0
	}
	message, err := strconv.ParseUint(messageText, 36, 31)
	if err != nil {
		return nil, 0
	}
	c = a.slot(number).Load()
	if c == nil || c.number != number {
		return nil, 0
	}
	return c, int(message)
}
