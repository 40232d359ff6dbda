package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// DeadLetters are those of one sink, at its broker.
type DeadLetters struct {
	// Sink is its name.
	Sink    string
	source  source.Config
	onKafka bool
}

// DeadLetter is one of them.
type DeadLetter struct {
	// Position is stream/sequence, or topic/partition/offset.
	Position string    `json:"position"`
	Stored   time.Time `json:"stored"`
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	Subject  string    `json:"subject"`
	// Bytes is the size of the event's payload, also where the letter has none (Truncated).
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated,omitempty"`
	Reason    string `json:"reason"`
	Attempts  string `json:"attempts"`
	// Destination is the subject or topic that the event was for.
	Destination string `json:"destination"`
	// Signature is of SignedBytes; "" for none.
	Signature string `json:"-"`
	// Invalid is why the message is no dead letter, though it lies among them; then only Position
	// is set. nil for a dead letter.
	Invalid error `json:"-"`

	message source.Message
}

var errNoDeadLetters = errors.New("there are no dead letters; 'bridge undelivered ls' lists what " +
	"was refused")

// NewDeadLetters says where the dead letters of a sink are. It makes no request.
func NewDeadLetters(o SourceOptions) (*DeadLetters, error) {
	sink, err := sinkOf(&o)
	if err != nil {
		return nil, err
	}
	d := &DeadLetters{Sink: sink.Name, source: source.Config{
		Client: o.Client, Patience: o.Patience,
	}}
	deadLetters := ""
	if _, section := sink.Section(); section.Describe() != nil {
		deadLetters = section.Describe().DeadLetters
	}
	switch {
	case sink.HTTP != nil:
		err = errors.New("what http.deadLetterURL was sent can't be read back; without it, " +
			"'bridge undelivered ls' lists what was refused")
	case sink.NATS == nil && sink.Kafka == nil:
		err = errors.New("its dead letters are among its events; only nats and kafka have a place " +
			"for them")
	case deadLetters == "" && sink.Kafka != nil:
		err = fmt.Errorf("kafka.deadLetterTopic is not set: %w", errNoDeadLetters)
	case deadLetters == "":
		err = fmt.Errorf("nats.deadLetterSubject is off, or the mode is kv: %w", errNoDeadLetters)
	case sink.Kafka != nil:
		k := *sink.Kafka
		k.Topic = k.DeadLetterTopic
		d.onKafka, err = true, d.source.UseKafka(&k, o.Config.Cluster)
	default:
		if err = d.source.UseNATS(sink.NATS, o.Config.Cluster, o.Config.State.Dir); err != nil {
			break
		}
		d.source.Subject, err = subjectPattern(deadLetters, o.Config.Cluster)
		if sink.NATS.DeadLetterSubject != "" || sink.NATS.Mode == nats.Core {
			// any stream may have it
			d.source.From = d.source.From[:strings.LastIndexByte(d.source.From, '/')+1]
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", sink.Name, err)
	}
	return d, nil
}

// subjectPattern returns what a template of subjects stands for, with wildcards for whole tokens.
func subjectPattern(template, cluster string) (string, error) {
	subject, err := source.Pattern(template, cluster, event.AppendSubjectToken)
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, "."), err
}

// Each reads the dead letters in the order in which they are stored, from a position on, of the
// given lanes, nil for all. What is no event is among them, as Invalid. A letter may be used until
// the next one. The error is the last element.
func (d *DeadLetters) Each(
	ctx context.Context, from source.Position, lanes []string,
) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		cfg := d.source
		cfg.After, cfg.Lanes = from, lanes
		reader, err := source.Open(ctx, cfg)
		if err != nil {
			yield(nil, err)
			return
		}
		defer reader.Close()
		for m, err := range reader.Messages(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			if l := d.read(m); l != nil && !yield(l, nil) {
				return
			}
		}
	}
}

// read returns a message as a dead letter of the sink, or as an invalid one; nil for any other.
// What is no event may have lost the name of its sink.
func (d *DeadLetters) read(m *source.Message) *DeadLetter {
	switch {
	case m.Sink != "" && m.Sink != d.Sink:
		return nil
	case m.Err != nil:
		return &DeadLetter{Position: positionOf(m), Invalid: m.Err}
	case m.Sink == "" || m.Other != "":
		return nil
	}
	e, err := m.CloudEvent()
	if err != nil {
		return &DeadLetter{Position: positionOf(m), Invalid: err}
	}
	return letterOf(m, e)
}

func positionOf(m *source.Message) string {
	return m.Lane + "/" + strconv.FormatUint(m.Offset, 10)
}

// letterOf returns an event of a message as a dead letter; nil for any other event.
func letterOf(m *source.Message, e *cloudevents.Event) *DeadLetter {
	extensions := e.Extensions()
	attribute := func(name string) string {
		text, _ := types.Format(extensions[name]) // "" where there is none
		return text
	}
	l := &DeadLetter{
		Position: positionOf(m), Stored: m.Stored.UTC(),
		ID: e.ID(), Type: e.Type(), Subject: e.Subject(), Bytes: int64(len(e.Data())),
		Truncated: attribute("truncated") != "", Reason: attribute("deadletterreason"),
		Attempts:    attribute("deadletterattempts"),
		Destination: cmp.Or(attribute("deadlettersubject"), attribute("deadlettertopic")),
		Signature:   attribute("deadlettersignature"),
		message:     *m,
	}
	if size, err := strconv.ParseInt(attribute("originalsize"), 10, 64); err == nil {
		l.Bytes = size
	}
	if l.Attempts == "" {
		return nil
	}
	return l
}

// Is reports whether the letter is the one of a position, or of an event's id.
func (l *DeadLetter) Is(name string) bool { return name == l.Position || name == l.ID }

// AppendEvent appends the letter as a structured CloudEvent.
func (l *DeadLetter) AppendEvent(dst []byte) []byte {
	return event.AppendStructured(dst, &l.message.Event)
}

// ParsePosition parses the Position of a DeadLetter.
func ParsePosition(text string) (p source.MessageAddress, err error) {
	at := strings.LastIndexByte(text, '/')
	if at > 0 {
		p.Lane = text[:at]
		if p.Offset, err = strconv.ParseUint(text[at+1:], 10, 64); err == nil {
			return p, nil
		}
	}
	return p, fmt.Errorf("%q is no position: want STREAM/SEQUENCE or TOPIC/PARTITION/OFFSET", text)
}

var errKeepsAll = errors.New("Kafka removes no single records; the retention of the topic does")

// CanRemove returns why no dead letter can be removed; nil where the broker may allow it.
func (d *DeadLetters) CanRemove() error {
	if d.onKafka {
		return errKeepsAll
	}
	return nil
}

// Remove removes dead letters from their stream. One that is gone already is no error.
func (d *DeadLetters) Remove(ctx context.Context, positions []string) error {
	if err := d.CanRemove(); err != nil || len(positions) == 0 {
		return err
	}
	addresses := make([]source.MessageAddress, len(positions))
	for i, text := range positions {
		var err error
		if addresses[i], err = ParsePosition(text); err != nil {
			return err
		}
	}
	return source.Delete(ctx, d.source, addresses)
}

// resentRun is the Run of an event that is sent out of the dead letters. A restart takes a dead
// letter for its event being stored (sinks.Recaller); an event with a Run is sent all the same.
const resentRun = "/resent"

// letterAttributes are those that make an event a dead letter.
var letterAttributes = []string{
	"deadletterreason", "deadletterattempts", "deadlettersubject", "deadlettertopic",
	"deadlettersignature",
}

// SignedBytes are what the signature of a dead letter is of: its sink, and all that Restore takes
// from it but the key of an event about an informer. Brokers may change the order of attributes.
func SignedBytes(sink string, e *event.Event) []byte {
	sorted := *e
	sorted.Extensions = slices.SortedFunc(slices.Values(e.Extensions),
		func(a, b event.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return event.AppendStructured([]byte(sink+"\n"), &sorted)
}

var errNoPayload = errors.New("the dead letter has no payload, and is not what happened: send " +
	"the present state of its object with 'bridge snapshot'")

// Restore returns the event as it was handed to the sink: with its id, its bytes and its
// destination.
func (l *DeadLetter) Restore(cluster string) (*event.Event, error) {
	e := l.message.Event
	switch {
	case e.Source != event.SourceOf(cluster):
		return nil, fmt.Errorf("the dead letter is of another cluster: %s", e.Source)
	case l.Truncated, len(e.Data) == 0 && !e.AboutInformer():
		return nil, errNoPayload
	}
	e.Data = slices.Clone(e.Data)
	e.Extensions = slices.DeleteFunc(slices.Clone(e.Extensions), func(a event.Attribute) bool {
		return slices.Contains(letterAttributes, a.Name)
	})
	e.Cluster, e.Run = cluster, resentRun
	if e.AboutInformer() {
		e.Part = event.PartOf(e.ID)
	}
	// The key is not signed: it may replace no object.
	if key := string(l.message.Key); e.AboutInformer() && strings.HasPrefix(key, "informers/") {
		e.CompactionKey = key
	}
	return &e, nil
}
