package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Bucket returns a key-value bucket that a sink with mode kv writes.
func Bucket(js jetstream.JetStream, bucket string) Source {
	return Source{
		backend: jetStream{js: js, stream: "KV_" + bucket, name: "bucket " + bucket, isBucket: true},
		isState: true,
	}
}

// Stream returns a stream that a sink with mode jetstream writes. Its payload is object, change or
// metadata where informers read it.
func Stream(js jetstream.JetStream, stream string) Source {
	return Source{backend: jetStream{js: js, stream: stream, name: "stream " + stream}}
}

// jetStream reads a stream, also that of a bucket. It is one partition.
type jetStream struct {
	js       jetstream.JetStream
	stream   string
	name     string // as the user calls it
	isBucket bool
}

func (s jetStream) String() string { return s.name }

func (s jetStream) extents(ctx context.Context) (map[partition]extent, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	return map[partition]extent{{}: {
		id:    strconv.FormatInt(info.Created.UnixNano(), 36),
		first: int64(max(info.State.FirstSeq, 1)), next: int64(info.State.LastSeq) + 1,
	}}, nil
}

func (s jetStream) open(
	ctx context.Context, from readOffsets, _ map[partition]extent,
) (reader, error) {
	cfg := jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   uint64(max(from[partition{}].next, 1)),
	}
	if s.isBucket && cfg.OptStartSeq == 1 {
		cfg = jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}
	}
	consumer, err := s.js.OrderedConsumer(ctx, s.stream, cfg)
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	return &jetStreamReader{
		source: s, messages: messages, pending: consumer.CachedInfo().NumPending,
		stop: context.AfterFunc(ctx, messages.Stop),
	}, nil
}

type jetStreamReader struct {
	source   jetStream
	messages jetstream.MessagesContext
	pending  uint64 // messages that were there and were not returned yet
	stop     func() bool
}

func (r *jetStreamReader) atEnd() bool { return r.pending == 0 }

func (r *jetStreamReader) close() {
	r.stop()
	r.messages.Stop()
}

func (r *jetStreamReader) next(context.Context) (*message, error) {
	msg, err := r.messages.Next(jetstream.NextMaxWait(quiet))
	if errors.Is(err, context.DeadlineExceeded) || err != nil && isTimeout(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	r.pending = meta.NumPending
	m := &message{offset: int64(meta.Sequence.Stream), subject: msg.Subject()}
	read := fromNATS(msg)
	switch {
	case isOfSink(msg.Subject()):
	case read.isEvent():
		if m.event, m.err = read.event(); m.err != nil {
			m.err = fmt.Errorf("message on %s: %w", msg.Subject(), m.err)
		}
	case r.source.isBucket && len(msg.Data()) == 0:
		m.removed = &removal{}
	}
	return m, nil
}

func isTimeout(err error) bool { return strings.Contains(err.Error(), "timeout") }

// isOfSink reports whether a subject is that of a fence or of a dead letter.
func isOfSink(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if token == "_fence" || token == "_deadletter" {
			return true
		}
	}
	return false
}
