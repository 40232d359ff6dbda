package kafka

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

var _ sinks.Sizer = (*Sink)(nil)

// maxUsualOverhead is more than what a record takes besides its payload, unless something in it is unusually long.
const maxUsualOverhead = 8 << 10

// Fits is nil when the topic takes the event in a batch of its own, compressed as it would be: that is what max.message.bytes is about. Where
// that can't be read, and for topics that are not met yet, it says nothing, and the broker decides.
func (s *Sink) Fits(e *event.Event) error {
	most := s.most(e)
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
		return refuse(fmt.Errorf("compress: %w", err))
	}
	work.bytes = bytes
	if compressed := len(bytes) - sizePrefix; compressed > most {
		return refuse(fmt.Errorf("%w: a batch of %d bytes, %d before compression, the topic's max.message.bytes is %d", sinks.ErrTooLarge, compressed, size, most))
	}
	return nil
}

// most is the largest batch that the topic of an event takes; 0 when that is not known.
func (s *Sink) most(e *event.Event) int {
	name := s.names.Get().(*[]byte)
	defer s.names.Put(name)
	*name = s.config.Topic.Append((*name)[:0], e, event.AppendTopicPart)
	t, err := s.known(*name)
	if err != nil || t == nil {
		return 0
	}
	return t.most
}

// asTooLarge says of a refusal for its size that it is one, whatever the broker calls it.
func asTooLarge(err error) error {
	if isTooLarge(err) {
		return fmt.Errorf("%w: %w", sinks.ErrTooLarge, err)
	}
	return err
}
