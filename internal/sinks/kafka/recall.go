package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// skew is how much earlier than a position's time a partition that it does not hold is read: brokers may set the times of records, and their
// clocks may be behind ours.
const skew = 5 * time.Minute

// deposed is how long a broker may take itself for the leader that is none any more, and name an end of the log that was passed long ago: KRaft gives a broker
// up that was not heard of for 9 s. It is also how long Recall waits for partitions that do not answer, all together.
const deposed = 15 * time.Second

// Recall implements sinks.Recaller: it reads the partitions from the saved offsets on. Without the right to read, it says so and recalls nothing. A partition
// that has no leader holds nobody up: its lane reads it before its first batch.
func (s *Sink) Recall(ctx context.Context, from []byte, found func(messageID string)) error {
	if from == nil {
		return nil
	}
	saved, ok := readPosition(from)
	if !ok {
		s.log.Warn("can't read the position that the state has for this sink; what was sent just before the last end may be sent again, with the same ids")
		return nil
	}
	s.recall.begin(saved, found)
	s.spreads.learn(saved)
	s.respread()
	deadline := time.Now().Add(deposed)
	heirs := make(map[string][]place, len(saved.Topics))
	for name, places := range saved.Topics {
		left, err := s.recallTopic(ctx, name, places, deadline)
		if err != nil {
			return err
		}
		heirs[name] = left
	}
	s.recall.heirs.Store(&heirs)
	for _, t := range s.inUse() {
		if err := s.recallNew(ctx, t.name, deadline); err != nil {
			return err
		}
	}
	return nil
}

// recallNew recalls a topic that was not read yet, if there is anything to recall.
func (s *Sink) recallNew(ctx context.Context, name string, deadline time.Time) error {
	places, unread := s.recall.unreadTopic(name)
	if !unread {
		return nil
	}
	left, err := s.recallTopic(ctx, name, places, deadline)
	if err == nil {
		s.recall.leave(name, left)
	}
	return err
}

// recallTopic reads a topic's partitions from the given places on, and the others from the time of the position on. It gives what their lanes carry
// on with, for each of the places; the place itself where it could not be read yet.
func (s *Sink) recallTopic(ctx context.Context, name string, places []place, deadline time.Time) ([]place, error) {
	c := s.connected()
	l, err := c.refresh(ctx, name)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		s.recall.postponeTopic(name) // deleted, or not heard of yet by a broker that has just started
		return places, nil
	}
	left := make([]place, len(places))
	for p := range left {
		left[p] = unused
	}
	for p := 0; p < len(l.leaders) && err == nil; p++ {
		if p < len(places) {
			left[p], err = s.recallPartition(ctx, newLane(s, c, name, p, 0), places[p], deadline)
		} else {
			_, err = s.recallPartition(ctx, newLane(s, c, name, p, 0), unused, deadline)
		}
	}
	switch {
	case err == nil:
	case unreadable(err):
		s.warnUnreadable(name, err)
	default:
		return nil, classify(ctx, fmt.Errorf("read back %s: %w", name, err))
	}
	s.recall.topicDone(name)
	return left, nil
}

// recallPartition has a lane that belongs to nobody read its partition from a place on; not for ever, while the partition does not answer.
func (s *Sink) recallPartition(ctx context.Context, l *lane, from place, deadline time.Time) (place, error) {
	l.deadline = deadline
	heir, err := unused, errImpatient
	if time.Now().Before(deadline) {
		heir, err = l.recall(ctx, &readback{saved: from, deadline: deadline}, s.recall.found)
	}
	if errors.Is(err, errImpatient) {
		s.log.Warn("can't read a partition back now; it is read before its next event is sent, and the others go on", "lane", l.name, "err", err)
		s.recall.postpone(l.topic, l.partition)
		return from, nil
	}
	return heir, err
}

func (s *Sink) warnUnreadable(topic string, err error) {
	s.log.Warn("can't read a topic back; what was sent just before the last end may be sent again, with the same ids: "+
		"grant the bridge's user Read on the topic, or set the sink's recall to false", "topic", topic, "err", err)
}
