package nats

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Hooks for tests of pure functions that have no way in from outside.
var (
	Classified = classified
	Covers     = covers
)

// AnswerBeforeSending gives what becomes of an ack before its message was written, and after.
func AnswerBeforeSending() (before, after string) {
	c := &call{
		batch: []*sinks.Message{{}}, done: make(chan struct{}), answered: make([]bool, 1),
		pending: 1,
	}
	of := ack{kind: stored, stream: "K8S", seq: 1}
	before = c.answer(0, of).String()
	c.aboutToSend(nil)
	return before, c.answer(0, of).String()
}

// ParseAck gives where a message is stored by an ack; ok is false for what is none, or an error.
func ParseAck(data []byte) (stream string, seq uint64, ok bool) {
	a := parseAck(&nats.Msg{Data: data})
	return a.stream, a.seq, a.kind == stored || a.kind == duplicate
}

// OriginOfNothing looks up a duplicate of no stream, which panics.
func OriginOfNothing(ctx context.Context, s *Sink) string {
	return s.originOf(ctx, &event.Event{ID: "7"}, s.events, nil, 1)
}

// CheckServer follows what a server sends, in parts, and gives how much of a message is to come.
func CheckServer(data []byte, part int) (payload int, err error) {
	var c protocol
	err = checkParts(data, part, c.check)
	return c.payload, err
}

// CheckWebSocket does so for what a server sends over WebSocket, and gives how much of a frame is
// to come as well.
func CheckWebSocket(data []byte, part int) (payload int, frame uint64, err error) {
	var w webSocket
	err = checkParts(data, part, w.check)
	return w.payload, w.left, err
}

func checkParts(data []byte, part int, check func([]byte) error) error {
	for chunk := range slices.Chunk(data, max(part, 1)) {
		if err := check(chunk); err != nil {
			return err
		}
	}
	return nil
}

// TailOf is the part of a stream that is read behind a saved position.
func RangeBehind(saved []byte, stream string, last, messages uint64) (first, end uint64, ok bool) {
	var p savedPosition
	if json.Unmarshal(saved, &p) != nil {
		return 0, 0, false
	}
	info := &jetstream.StreamInfo{
		Config: jetstream.StreamConfig{Name: stream},
		State:  jetstream.StreamState{LastSeq: last, Msgs: messages},
	}
	t := rangeBehind(info, &p)
	return t.first, t.last, true
}

// NewEncodeLoop is the encoder as Publish uses it for one message after the other.
func NewEncodeLoop(encoding string) func(*event.Event) {
	template, err := event.ParseTemplate(testkit.WithDefaults(Config{}).Subject)
	if err != nil {
		panic(err)
	}
	enc := encoders.Get().(*encoder)
	limits := sizeLimits{payload: 1 << 20, header: maxHeader}
	return func(e *event.Event) {
		enc.encode(e, route{subject: template}, encoding,
			func(dst []byte) []byte { return append(dst, "_INBOX.abcdefghijklmnopqrstuv.1-1"...) })
		if err := limits.check(enc); err != nil {
			panic(err)
		}
		enc.message()
	}
}

// NewEncoder gives the message of one event after the other, each in the memory of the one before,
// and what its headers take on the wire.
func NewEncoder() func(e *event.Event, encoding string) (msg *nats.Msg, header int) {
	template, err := event.ParseTemplate(testkit.WithDefaults(Config{}).Subject)
	if err != nil {
		panic(err)
	}
	enc := &encoder{msg: nats.Msg{Header: nats.Header{}}}
	return func(e *event.Event, encoding string) (*nats.Msg, int) {
		enc.encode(e, route{subject: template}, encoding, nil)
		return enc.message(), enc.header
	}
}

// ReadAfterFailedWrites reads a line of a connection, writes until the other end has closed it, as
// the client library does while it connects, and returns what is left to read.
func ReadAfterFailedWrites(conn net.Conn, closed <-chan struct{}) (left []byte, err error) {
	b := newBoundedConn(conn, func([]byte) error { return nil })
	if _, err := b.Read(make([]byte, 1<<10)); err != nil {
		return nil, err
	}
	<-closed
	for range 3 {
		if _, err := b.Write([]byte("PING\r\n")); err != nil {
			return nil, err
		}
	}
	left, _ = io.ReadAll(b) // it ends with the connection
	return left, nil
}

// AllSubjects is the pattern in the hint of an embedded server.
var AllSubjects = allSubjects

// Refusal is what a person reads of a stream's answer.
func Refusal(answer string) string { return parseAckError([]byte(answer)).err.Error() }

// CompareNow makes the comparison of a bucket due.
func (s *Sink) CompareNow() { s.bucket.rows.began = time.Now().Add(-compareEvery) }
