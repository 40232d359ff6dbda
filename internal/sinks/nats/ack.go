package nats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

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
	return failedWith(classified(fmt.Errorf("refused by the stream: %w", response.Error)))
}

func failedWith(err error) ack { return ack{kind: failed, err: err} }
