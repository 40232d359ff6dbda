package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Source is where events are read.
type Source struct {
	js     jetstream.JetStream
	stream string
	name   string // as the user calls it
	bucket bool
}

// Bucket is a key-value bucket that a sink with mode kv writes.
func Bucket(js jetstream.JetStream, bucket string) Source {
	return Source{js: js, stream: "KV_" + bucket, name: "bucket " + bucket, bucket: true}
}

// Stream is a stream that a sink with mode jetstream writes. Its payload is object, change or
// metadata where informers read it.
func Stream(js jetstream.JetStream, stream string) Source {
	return Source{js: js, stream: stream, name: "stream " + stream}
}

// String names the source in errors.
func (s Source) String() string { return s.name }

func (s Source) open(ctx context.Context) (jetstream.Stream, error) {
	found, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return found, nil
}

// isEvent reports whether a message is an event. Fences and dead letters are none, nor is the
// marker by which a client or the server has deleted a key.
func isEvent(msg jetstream.Msg) bool {
	for token := range strings.SplitSeq(msg.Subject(), ".") {
		if token == "_fence" || token == "_deadletter" {
			return false
		}
	}
	return value(msg.Headers(), "ce-id") != "" || isStructured(msg.Headers())
}
