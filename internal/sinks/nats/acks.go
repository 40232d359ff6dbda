package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// acks brings the answers of the server to the Publish calls that wait for them. Each call has an
// inbox of its own meanwhile, from which it reads its answers itself. The reply subject of a
// message is <inbox>.<call>-<message>, both in base 36. The number of a call is its slot in the
// table. Numbers are never reused, so a late ack of an earlier call of the inbox is known by its
// number.
type acks struct {
	metrics *metrics
	inDoubt *inDoubt      // messages of earlier calls that were not answered
	tickets chan struct{} // one for each running call, so that a slot is always free

	last  atomic.Uint64 // number of the newest call
	slots [256]atomic.Pointer[call]

	mu      sync.Mutex
	prefix  string   // guarded by mu: of the subjects of inboxes; set by Open
	room    int      // guarded by mu: of an inbox, in messages
	inboxes []*inbox // guarded by mu: those that no call has
	made    int      // guarded by mu: inboxes of this connection
}

// inbox is a subscription. What comes while its call is writing waits in messages.
type inbox struct {
	subject  string
	messages chan *nats.Msg
}

func newAcks(m *metrics, unanswered *inDoubt) *acks {
	a := &acks{metrics: m, inDoubt: unanswered}
	a.tickets = make(chan struct{}, len(a.slots)/2)
	return a
}

// open begins with a new connection, whose calls have at most so many messages. It makes the first
// inbox, so that a missing right shows now.
func (a *acks) open(conn *nats.Conn, messages int) error {
	a.mu.Lock()
	a.prefix, a.room, a.inboxes, a.made = conn.NewInbox(), 2*messages, nil, 0
	a.mu.Unlock()
	in, err := a.acquire(conn)
	if err == nil {
		a.release(in)
	}
	return err
}

// acquire gives an inbox that no other call has.
func (a *acks) acquire(conn *nats.Conn) (*inbox, error) {
	a.mu.Lock()
	if n := len(a.inboxes); n > 0 {
		in := a.inboxes[n-1]
		a.inboxes = a.inboxes[:n-1]
		a.mu.Unlock()
		return in, nil
	}
	in := &inbox{
		subject:  a.prefix + "." + strconv.Itoa(a.made),
		messages: make(chan *nats.Msg, a.room),
	}
	a.made++
	a.mu.Unlock()
	if _, err := conn.ChanSubscribe(in.subject+".*", in.messages); err != nil {
		return nil, fmt.Errorf("subscribe to acks: %w", err)
	}
	return in, nil
}

func (a *acks) release(in *inbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inboxes = append(a.inboxes, in)
}

// register adds a call, so that a broken connection finds it. It waits only when half of all slots
// are in use.
func (a *acks) register(
	ctx context.Context, conn *nats.Conn, batch []*sinks.Message, to route,
) (*call, error) {
	select {
	case a.tickets <- struct{}{}:
	case <-ctx.Done():
		return nil, stopped(ctx.Err())
	}
	in, err := a.acquire(conn)
	if err != nil {
		<-a.tickets
		return nil, classified(err)
	}
	c := &call{
		batch: batch, to: to, inbox: in, done: make(chan struct{}), pending: len(batch),
		sent: make([]sentMessage, 0, len(batch)), answered: make([]bool, len(batch)),
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
	a.release(c.inbox)
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

// forbidden answers the messages that wait for an ack of a subject to which the user may not
// publish: none will come. The other messages of their calls do not wait for them.
func (a *acks) forbidden(subject string, err error) {
	for i := range a.slots {
		if c := a.slots[i].Load(); c != nil {
			c.forbidden(subject, err)
		}
	}
}

// appendReply appends the subject for the ack of message i.
func (c *call) appendReply(dst []byte, i int) []byte {
	dst = append(dst, c.inbox.subject...)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, c.number, 36)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, uint64(i), 36)
}

// receive takes a message of a call's inbox.
func (a *acks) receive(c *call, m *nats.Msg) {
	from, ok := c.attemptOf(m.Subject)
	if !ok {
		a.metrics.strayAcks.With(foreign.String()).Inc()
		return
	}
	ack, i := parseAck(m), from.message
	if from.call != c.number {
		a.metrics.strayAcks.With(late.String()).Inc()
		if id, believed := a.inDoubt.acknowledged(from, &ack); believed {
			c.answerStored(id)
		}
		return
	}
	outcome := foreign // the stream's answer is still to come
	if ack.kind != notAnAck {
		outcome = c.answer(i, ack)
	}
	if outcome != accepted {
		a.metrics.strayAcks.With(outcome.String()).Inc()
	}
}

// attempt is one time that a message was sent: as which one of a call.
type attempt struct {
	call    uint64
	message int
}

// attemptOf is what a reply subject of the call's inbox names; not ok when it names nothing.
func (c *call) attemptOf(subject string) (a attempt, ok bool) {
	token := strings.TrimPrefix(subject, c.inbox.subject+".")
	callText, messageText, ok := strings.Cut(token, "-")
	if !ok {
		return attempt{}, false
	}
	number, err := strconv.ParseUint(callText, 36, 64)
	if err != nil {
		return attempt{}, false
	}
	message, err := strconv.ParseUint(messageText, 36, 31)
	return attempt{call: number, message: int(message)}, err == nil
}

type ackKind int

const (
	notAnAck ackKind = iota
	stored
	duplicate
	failed
)

// ack is the server's answer to one message; err is set, with its class, when kind is failed.
type ack struct {
	kind   ackKind
	err    error
	stream string // where it is stored; valid while the message it came in is
	seq    uint64 // 0 only when it is failed
}

// maxAck is larger than any answer of a stream to a message.
const maxAck = 16 << 10

var (
	ackError     = []byte(`"error":`)
	ackStream    = []byte(`"stream":`)
	ackSequence  = []byte(`"seq":`)
	ackDuplicate = []byte(`"duplicate":`) // only there when it is true
)

// parseAck reads an ack by what is in it: {"stream":"K8S", "seq":7}, and "duplicate": true where
// the message was stored before. Only errors are decoded.
func parseAck(m *nats.Msg) (a ack) {
	defer func() { // whether the message is stored is not known
		if recovered := recover(); recovered != nil {
			a = failedWith(&sinks.Error{Class: sinks.Retry, Err: event.NewPanicError(recovered)})
		}
	}()
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return failedWith(classified(ErrNoStream))
		}
		return ack{kind: notAnAck}
	}
	if len(m.Data) > maxAck {
		return ack{kind: notAnAck}
	}
	if bytes.Contains(m.Data, ackError) {
		return parseAckError(m.Data)
	}
	if !bytes.Contains(m.Data, ackStream) || !bytes.Contains(m.Data, ackSequence) {
		return ack{kind: notAnAck}
	}
	a = ack{kind: stored, stream: textOf(m.Data, ackStream), seq: numberOf(m.Data, ackSequence)}
	if a.stream == "" || a.seq == 0 {
		return ack{kind: notAnAck}
	}
	if bytes.Contains(m.Data, ackDuplicate) {
		a.kind = duplicate
	}
	return a
}

// textOf returns the string behind a key, "" for none. Names of streams have nothing that JSON
// escapes.
func textOf(data, key []byte) string {
	_, rest, _ := bytes.Cut(data, key)
	_, rest, _ = bytes.Cut(rest, []byte{'"'})
	end := max(bytes.IndexByte(rest, '"'), 0)
	return unsafe.String(unsafe.SliceData(rest), end)
}

// numberOf returns the number behind a key, 0 for none, or one that no sequence reaches.
func numberOf(data, key []byte) (n uint64) {
	_, rest, _ := bytes.Cut(data, key)
	for _, c := range bytes.TrimLeft(rest, " ") {
		if c < '0' || c > '9' {
			break
		}
		if n > math.MaxInt64/10-10 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

func parseAckError(data []byte) ack {
	var response struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &response); err != nil || response.Error == nil {
		return ack{kind: notAnAck}
	}
	return failedWith(classified(explainRefusal(response.Error)))
}

func failedWith(err error) ack { return ack{kind: failed, err: err} }
