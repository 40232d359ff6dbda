package nats

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type ackKind int

const (
	notAnAck ackKind = iota
	stored
	duplicate
	failed
)

// ack is what the server says of one message; err is set, with its class, when kind is failed.
type ack struct {
	kind ackKind
	err  error
}

var (
	ackError     = []byte(`"error":`)
	ackStream    = []byte(`"stream":`)
	ackSequence  = []byte(`"seq":`)
	ackDuplicate = []byte(`"duplicate":`) // only there when it is true
)

// parseAck reads an ack by what is in it: {"stream":"K8S", "seq":7}, and "duplicate": true where the message was stored
// before. Only errors are decoded.
func parseAck(m *nats.Msg) ack {
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return ack{failed, answer(ErrNoStream)}
		}
		return ack{kind: notAnAck}
	}
	if bytes.Contains(m.Data, ackError) {
		return parseAckError(m.Data)
	}
	if !bytes.Contains(m.Data, ackStream) || !bytes.Contains(m.Data, ackSequence) {
		return ack{kind: notAnAck}
	}
	if bytes.Contains(m.Data, ackDuplicate) {
		return ack{kind: duplicate}
	}
	return ack{kind: stored}
}

func parseAckError(data []byte) ack {
	var response struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &response); err != nil || response.Error == nil {
		return ack{kind: notAnAck}
	}
	return ack{failed, answer(fmt.Errorf("refused by the stream: %w", response.Error))}
}
