package nats

import (
	"context"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// DeadLetter publishes the event to the dead-letter subject, with the attribute deadlettersubject:
// the subject it was intended for.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	if s.dead.subject == nil {
		return sinks.ErrNoDeadLetter
	}
	to := event.Attribute{Name: "deadlettersubject", Value: string(s.events.appendSubject(nil, e))}
	return sinks.DeadLetter(ctx, e, reason, attempts, to, func(ctx context.Context,
		letter *event.Event,
	) error {
		m := &sinks.Message{Event: letter}
		s.publish(ctx, []*sinks.Message{m}, s.dead)
		return m.Err
	})
}
