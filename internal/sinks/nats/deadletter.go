package nats

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Attributes that a dead letter has beyond those of its event.
const (
	attrReason       = "deadletterreason"
	attrAttempts     = "deadletterattempts"
	attrSubject      = "deadlettersubject" // where the event should have gone
	attrTruncated    = "truncated"
	attrOriginalSize = "originalsize" // of the data that is not there, in bytes
)

// maxReason bounds the reason, in bytes, so that a reason never makes a dead letter too large.
const maxReason = 1024

// DeadLetter publishes the event to the dead-letter subject with the reason, the attempts and the subject it was meant for
// as attributes. Where that is too large as well, it goes without its data, with truncated=true and originalsize; and where it is the
// attributes that are too large, with these cut.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if s.dead.subject == nil {
		return sinks.ErrNoDeadLetter
	}
	dead := s.deadLetter(e, reason, attempts)
	err := s.publishOne(ctx, dead)
	if !isRefused(err) {
		return err
	}
	dead.Extensions = append(dead.Extensions,
		event.Attribute{Name: attrTruncated, Value: "true"},
		event.Attribute{Name: attrOriginalSize, Value: strconv.Itoa(len(e.Data))})
	dead.Data = nil
	if err = s.publishOne(ctx, dead); !isRefused(err) {
		return err
	}
	return s.publishOne(ctx, sinks.Stub(dead))
}

func isRefused(err error) bool { return err != nil && sinks.Classify(err) == sinks.Refused }

// deadLetter is a copy of the event: an event does not change once it was handed on.
func (s *Sink) deadLetter(e *event.Event, reason error, attempts int) *event.Event {
	dead := *e
	dead.Extensions = append(slices.Clip(e.Extensions),
		event.Attribute{Name: attrReason, Value: printable(reason.Error())},
		event.Attribute{Name: attrAttempts, Value: strconv.Itoa(attempts)},
		event.Attribute{Name: attrSubject, Value: string(s.events.subject.Append(nil, e, event.AppendSubjectToken))})
	return &dead
}

func (s *Sink) publishOne(ctx context.Context, e *event.Event) error {
	m := &sinks.Message{Event: e}
	s.publish(ctx, []*sinks.Message{m}, s.dead)
	return m.Err
}

// printable makes a text fit for an attribute: CloudEvents strings hold no control characters.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}
