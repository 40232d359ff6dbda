package kafka

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// DeadLetter stores the event in the dead-letter topic, with the attribute deadlettertopic: the
// topic it was intended for.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if s.config.Topics.DeadLetters == nil {
		return sinks.ErrNoDeadLetter
	}
	intended := s.config.Topics.Events.Append(nil, e, event.AppendTopicPart)
	to := event.Attribute{Name: "deadlettertopic", Value: string(intended)}
	return sinks.DeadLetter(ctx, e, reason, attempts, to, s.sendLetter)
}

// sendLetter stores one letter. The letter of a deleted object is stored without a tombstone: that
// would delete the letters of earlier events from a compacted topic.
func (s *Sink) sendLetter(ctx context.Context, letter *event.Event) error {
	l, err := s.laneOf(ctx, s.config.Topics.DeadLetters, letter)
	if err != nil {
		return err
	}
	m := &sinks.Message{Event: letter}
	enc := s.encode
	enc.tombstones = false
	l.publish(ctx, []*sinks.Message{m}, enc)
	return m.Err
}
