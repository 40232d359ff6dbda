package kafka

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// DeadLetter sends the event with the attributes deadletterreason, deadletterattempts and deadlettertopic added. When it is too
// large for the dead-letter topic too, it goes without its payload, as truncated=true with originalsize in bytes, and in the end with
// its attributes cut.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if s.config.DeadLetterTopic == nil {
		return sinks.ErrNoDeadLetter
	}
	letter := s.letter(e, reason, attempts)
	err := s.send(ctx, letter)
	if !isRefused(err) {
		return err
	}
	letter.Extensions = append(letter.Extensions,
		event.Attribute{Name: "truncated", Value: "true"},
		event.Attribute{Name: "originalsize", Value: strconv.Itoa(len(letter.Data))})
	letter.Data = nil
	if err = s.send(ctx, letter); !isRefused(err) {
		return err
	}
	return s.send(ctx, sinks.Stub(letter))
}

func isRefused(err error) bool { return err != nil && sinks.Classify(err) == sinks.Refused }

// letter is the event with what happened to it.
func (s *Sink) letter(e *event.Event, reason error, attempts int) *event.Event {
	letter := *e
	letter.Extensions = append(slices.Clip(slices.Clone(e.Extensions)),
		event.Attribute{Name: "deadletterreason", Value: shorten(reason)},
		event.Attribute{Name: "deadletterattempts", Value: strconv.Itoa(attempts)},
		event.Attribute{Name: "deadlettertopic", Value: string(s.config.Topic.Append(nil, e, event.AppendTopicPart))})
	return &letter
}

// send stores one event in the dead-letter topic. A deleted object's letter takes no tombstone with it: it would delete
// the letters of its earlier events from a compacted topic.
func (s *Sink) send(ctx context.Context, letter *event.Event) error {
	l, err := s.laneOf(ctx, s.config.DeadLetterTopic, letter)
	if err != nil {
		return err
	}
	m := &sinks.Message{Event: letter}
	enc := s.encode
	enc.tombstones = false
	l.publish(ctx, []*sinks.Message{m}, enc)
	return m.Err
}

// shorten gives an error's text as an attribute's value: one line, of a bounded length, valid UTF-8.
func shorten(err error) string {
	const longest = 1024
	if err == nil {
		return "unknown"
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > longest {
		text = text[:longest]
	}
	return strings.ToValidUTF8(text, "")
}
