package read

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	natsbinding "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// JetStream reads a stream. One goroutine uses it.
type JetStream struct {
	URL    string
	Stream string
	// Filter is the subject of what is read; "" for everything.
	Filter string

	events []Event
	fences []Fence
	seen   uint64 // the last sequence that was read
}

// Fence is a message by which a replica of a bridge keeps those out that published before it.
type Fence struct {
	Place uint64 // in the stream
	At    time.Time
}

// Fences are those among what Refresh has read.
func (r *JetStream) Fences() []Fence { return r.fences }

// Refresh reads what has come and gives everything, in the order of the stream.
func (r *JetStream) Refresh(ctx context.Context) ([]Event, error) {
	conn, err := nats.Connect(r.URL) // again, since the server may live in a bridge that was ended
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", r.URL, err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, r.Stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", r.Stream, err)
	}
	if err := r.read(ctx, stream); err != nil {
		return nil, fmt.Errorf("stream %s: %w", r.Stream, err)
	}
	return r.events, nil
}

// Take reads what has come since the last Take, and keeps none of it.
func (r *JetStream) Take(ctx context.Context) (events []Event, err error) {
	events, err = r.Refresh(ctx)
	r.events, r.fences = nil, nil
	return events, err
}

// Count is how many messages the stream holds. It reads none.
func (r *JetStream) Count(ctx context.Context) (int, error) {
	conn, err := nats.Connect(r.URL)
	if err != nil {
		return 0, fmt.Errorf("connect to %s: %w", r.URL, err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, r.Stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", r.Stream, err)
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

// next is the sequence of the first message that was not read.
func (r *JetStream) next() uint64 { return r.seen + 1 }

func (r *JetStream) read(ctx context.Context, stream jetstream.Stream) error {
	last := stream.CachedInfo().State.LastSeq
	if r.next() > last {
		return nil
	}
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next()}
	if r.Filter != "" {
		config.FilterSubjects = []string{r.Filter}
	}
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err != nil {
		return err
	}
	if r.Filter != "" {
		return r.readFiltered(ctx, consumer)
	}
	for r.next() <= last {
		batch, err := consumer.Fetch(int(min(last-r.next()+1, 1000)), jetstream.FetchMaxWait(5*time.Second)) // it waits for as many
		if err != nil {
			return err
		}
		came, err := r.takeAll(ctx, batch)
		if err != nil {
			return err
		}
		if !came {
			return fmt.Errorf("nothing came after message %d of %d", r.next()-1, last)
		}
	}
	return nil
}

// takeAll takes the messages of a batch. It reports whether there were any.
func (r *JetStream) takeAll(ctx context.Context, batch jetstream.MessageBatch) (came bool, err error) {
	before := r.seen
	for msg := range batch.Messages() {
		if err := r.take(ctx, msg); err != nil {
			return false, err
		}
	}
	return r.seen != before, batch.Error()
}

// readFiltered reads until nothing is left: the last message of the stream may be none of these.
func (r *JetStream) readFiltered(ctx context.Context, consumer jetstream.Consumer) error {
	for {
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		came, err := r.takeAll(ctx, batch)
		if err != nil {
			return err
		}
		if !came {
			return nil
		}
	}
}

// take takes a message for what it is.
func (r *JetStream) take(ctx context.Context, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	r.seen = meta.Sequence.Stream
	if strings.Contains(msg.Subject(), "._fence.") {
		r.fences = append(r.fences, Fence{Place: r.seen, At: meta.Timestamp})
		return nil
	}
	e, err := FromNATS(ctx, msg)
	r.events = append(r.events, e)
	return err
}

// FromNATS makes an event of a JetStream message.
func FromNATS(ctx context.Context, msg jetstream.Msg) (Event, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Event{}, err
	}
	e := Event{Place: meta.Sequence.Stream, At: meta.Timestamp, NATSSubject: msg.Subject(), MessageID: msg.Headers().Get(nats.MsgIdHdr)}
	header, err := decodeHeader(msg.Headers())
	if err != nil {
		return e, fmt.Errorf("message %d on %s: %w", e.Place, e.NATSSubject, err)
	}
	return e, e.decode(ctx, natsbinding.NewMessage(&nats.Msg{Subject: e.NATSSubject, Header: header, Data: msg.Data()}))
}

// decodeHeader takes the percent-encoding off, which the NATS protocol binding asks for and the
// SDK's reader leaves as it is.
func decodeHeader(encoded nats.Header) (nats.Header, error) {
	header := nats.Header{}
	for name, values := range encoded {
		for _, value := range values {
			if strings.HasPrefix(name, "ce-") {
				var err error
				if value, err = url.PathUnescape(value); err != nil {
					return nil, fmt.Errorf("header %s: %w", name, err)
				}
			}
			header[name] = append(header[name], value)
		}
	}
	return header, nil
}

// decode reads the message with the SDK and checks the event against the specification.
func (e *Event) decode(ctx context.Context, msg binding.MessageReader) error {
	if msg.ReadEncoding() == binding.EncodingUnknown {
		return fmt.Errorf("message %d on %s%s is no CloudEvent", e.Place, e.NATSSubject, e.Lane)
	}
	ev, err := binding.ToEvent(ctx, msg)
	if err != nil {
		return fmt.Errorf("message %d on %s%s: %w", e.Place, e.NATSSubject, e.Lane, err)
	}
	if err := ev.Validate(); err != nil {
		return fmt.Errorf("message %d on %s%s: %w", e.Place, e.NATSSubject, e.Lane, err)
	}
	e.Event = *ev
	return nil
}
