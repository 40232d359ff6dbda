package kafka

import (
	"context"
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

var _ sinks.Rememberer = (*Sink)(nil)

// Remembers reads the last records of each partition of the topic, if that exists.
func (s *Sink) Remembers(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (found bool, err error) {
	c := s.connected()
	if c == nil {
		return false, asReconnect(errNotOpen)
	}
	name := string(s.config.Topics.Events.Append(nil, about, event.AppendTopicPart))
	if checkTopic(name) != nil {
		return false, nil
	}
	l, err := c.refresh(ctx, name)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return false, nil
	}
	const looks = 32 // a topic with more partitions is sure to have something in these
	for p := 0; p < min(len(l.leaders), looks) && err == nil && !found; p++ {
		found, err = s.lastIs(ctx, c, name, p, ours)
	}
	if err != nil {
		return false, sinkError(ctx, fmt.Errorf("look at the last records of %s: %w", name, err))
	}
	return found, nil
}

// lastIs passes to ours the records in the last batches of a partition. It reads some offsets back:
// the last ones may belong to control records, or be compacted away.
func (s *Sink) lastIs(
	ctx context.Context, c *cluster, topic string, partition int, ours func(sinks.Trace) bool,
) (found bool, err error) {
	const back = 100
	l := newLane(s, c, topic, partition, 0)
	start, end, err := l.bounds(ctx)
	if err != nil || start >= end {
		return false, err
	}
	p, err := c.fetch(ctx, topic, partition, max(start, end-back), readAll)
	if err != nil {
		return false, err
	}
	for _, b := range p.batches {
		if b.isForeign() {
			continue
		}
		err := b.each(0, func(r *record) {
			if id := s.messageID(r); !found && id != "" && r.key != nil {
				found = ours(sinks.Trace{MessageID: id, PartitionKey: string(r.key)})
			}
		})
		if err != nil {
			s.warnDamaged(l.name, &b, err)
		}
	}
	return found, nil
}
