package kafka

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

var _ sinks.Sizer = (*Sink)(nil)

// maxUsualOverhead is more than what a record takes besides its payload, unless a header is
// unusually long.
const maxUsualOverhead = 8 << 10

// Fits returns nil when the topic accepts the event in a batch of its own, compressed as it would
// be: max.message.bytes is about that. Where the setting can't be read, and for topics not yet
// looked up, Fits returns nil and the broker decides.
func (s *Sink) Fits(e *event.Event) error {
	most := s.maxMessageBytes(e)
	if most <= 0 || len(e.Data)+maxUsualOverhead < most {
		return nil
	}
	work := s.scratch.Get().(*scratch)
	defer s.scratch.Put(work)
	work.writer.reset()
	s.encode.put(&work.writer, e, time.Now())
	size := work.writer.size()
	if size <= most {
		return nil
	}
	bytes, err := work.writer.finish(work.bytes[:0], s.codec)
	if err != nil {
		return asRefused(fmt.Errorf("compress: %w", err))
	}
	work.bytes = bytes
	if compressed := len(bytes) - sizePrefix; compressed > most {
		return asRefused(fmt.Errorf("%w: a batch of %d bytes, %d before compression, the topic's "+
			"max.message.bytes is %d", sinks.ErrTooLarge, compressed, size, most))
	}
	if size <= maxRequest {
		s.fitted.keep(e, bytes, size, work.writer.count)
		work.bytes = nil
	}
	return nil
}

// maxMessageBytes returns the largest batch that the topic of an event accepts; 0 when that is not
// known.
func (s *Sink) maxMessageBytes(e *event.Event) int {
	name := s.names.Get().(*[]byte)
	defer s.names.Put(name)
	*name = s.config.Topics.Events.Append((*name)[:0], e, event.AppendTopicPart)
	t, err := s.lookupTopic(*name)
	if err != nil || t == nil {
		return 0
	}
	return t.maxMessageBytes
}

// asTooLarge marks a refusal for its size as sinks.ErrTooLarge, whatever code the broker uses.
func asTooLarge(err error) error {
	if isTooLarge(err) {
		return fmt.Errorf("%w: %w", sinks.ErrTooLarge, err)
	}
	return err
}
