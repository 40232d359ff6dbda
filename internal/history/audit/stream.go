package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/settings"
)

// Stream is what something else fills with audit events. A message is an event, an `EventList`, or
// what a subscription of CloudWatch Logs or an Azure diagnostic setting makes of them; it may be
// gzip. How far it is read is stored with what was read, and no consumer or group is left at the
// broker. An event that never came into it is not noticed.
type Stream struct {
	// From is the address, as `bridge archive --from` takes it: `nats://host:4222/STREAM` or
	// `kafka://host:9092/topic`. Required.
	From string `yaml:"from"`
	// Subject is what is read of a JetStream stream; it may have wildcards. Left out: all of it.
	Subject string `yaml:"subject"`
	// Sink is the name of the sink whose credentials and certificates are used; it may be one that
	// no informer names. Left out: none.
	Sink string `yaml:"sink"`
	// Delay is how long after a request its event may come into the stream. An answer that another
	// event could change waits so long. At most 14 minutes.
	Delay time.Duration `yaml:"delay" default:"5m"`
}

// streamSchemes are those that source.Open takes of brokers.
var streamSchemes = []string{"nats", "tls", "ws", "wss", "kafka"}

// mostDelay is below attributedBy, when an event about a user is sent in any case.
const mostDelay = attributedBy - time.Minute

// IsKafka reports whether it is a topic.
func (s *Stream) IsKafka() bool { return strings.HasPrefix(s.From, "kafka://") }

// name is under which the position is stored.
func (s *Stream) name() string { return strings.TrimSpace(s.From + " " + s.Subject) }

func (s *Stream) validate(ps *settings.Report, path string) {
	scheme, rest, _ := strings.Cut(s.From, "://")
	host, name, _ := strings.Cut(rest, "/")
	switch {
	case s.From == "":
		ps.Add(path+".from", "required: nats://host:4222/STREAM or kafka://host:9092/topic")
	case !slices.Contains(streamSchemes, scheme) || host == "" || name == "":
		ps.Add(path+".from", "want nats://host:4222/STREAM or kafka://host:9092/topic")
	case strings.Contains(host, "@"):
		ps.Add(path+".from", "credentials are those of sink: it must have none")
	case s.IsKafka() && s.Subject != "":
		ps.Add(path+".subject", "a Kafka topic has none")
	}
	if s.Delay < 0 || s.Delay > mostDelay {
		ps.Add(path+".delay", "want 0 to %s", mostDelay)
	}
}

// Reader reads a stream. sinks/source has what it is made of.
type Reader interface {
	// Messages are those behind the position, up to the end that the stream has when the iteration
	// begins. The error is the last element; ErrRecreated for a stream that is not the one of the
	// position.
	Messages(ctx context.Context) iter.Seq2[*Message, error]
	// Position is behind the last message that Messages has given.
	Position() (json.RawMessage, error)
	// Removed counts the stretches that were removed before they could be read.
	Removed() int
	Close()
}

// ErrRecreated is the error of a stream that was deleted, and one of its name made.
var ErrRecreated = errors.New("the stream was recreated")

// Message is one of a Reader. It is valid until the next one.
type Message struct {
	Lane   string // what is in order
	Offset uint64
	Data   []byte
	// Err is why the message can't be read at all.
	Err error
}

// stream follows a stream.
type stream struct {
	*source
	config  *Stream
	removed int       // of the Reader's stretches that were lost
	stored  time.Time // when the state was stored last
}

// followEvery is how often a stream is asked for what came into it.
const followEvery = time.Second

// follow reads until ctx ends, or the broker fails.
func (s *stream) follow(ctx context.Context) error {
	for {
		err := s.read(ctx)
		if !errors.Is(err, ErrRecreated) {
			return err
		}
		s.lose(s.state.Until, time.Now(), ErrRecreated.Error())
		s.state.Position = nil
		if err := s.store(ctx, &batch{}); err != nil {
			return err
		}
	}
}

func (s *stream) read(ctx context.Context) error {
	reader, err := s.OpenStream(ctx, s.config, s.state.Position)
	if err != nil {
		return err
	}
	defer reader.Close()
	s.removed = 0
	for {
		if err := s.poll(ctx, reader); err != nil {
			return err
		}
		if err := ratelimit.Sleep(ctx, s.pause(followEvery)); err != nil {
			return err
		}
	}
}

// poll reads what was added. What it has read before it fails is stored.
func (s *stream) poll(ctx context.Context, reader Reader) (err error) {
	began := time.Now()
	b := batch{since: s.state.Until}
	for m, readErr := range reader.Messages(ctx) {
		if err = readErr; err == nil {
			err = s.take(&b, m)
		}
		if err == nil && b.isFull() {
			err = s.storeRead(ctx, reader, &b)
		}
		if err != nil {
			break
		}
	}
	if errors.Is(err, ErrRecreated) {
		return err
	}
	if err == nil {
		if s.state.Since.IsZero() {
			s.state.Since = began // what had come before is not known to be all
		}
		s.state.Until = began.Add(-max(s.config.Delay, skew))
		if len(b.requests) == 0 && !b.isDamaged && began.Sub(s.stored) < s.pause(storeEvery) {
			return nil
		}
	}
	s.stored = began
	return cmp.Or(err, s.storeRead(ctx, reader, &b))
}

// storeRead stores a batch with the position behind it.
func (s *stream) storeRead(ctx context.Context, reader Reader, b *batch) (err error) {
	if removed := reader.Removed(); removed > s.removed {
		s.removed = removed
		s.lose(b.since, time.Now(), "the stream has removed events before they were read")
	}
	if s.state.Position, err = reader.Position(); err != nil {
		return err
	}
	return s.store(ctx, b)
}

// take adds the events of a message.
func (s *stream) take(b *batch, m *Message) (err error) {
	at := place{m.Lane, int64(m.Offset)}
	if m.Err != nil {
		s.skip(b, at, m.Err)
		return nil
	}
	unreadable := eachEvent(m.Data, func(text []byte) {
		err = cmp.Or(err, s.add(b, text, at))
	})
	if unreadable != nil {
		s.skip(b, at, unreadable)
	}
	return err
}
