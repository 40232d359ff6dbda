package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// clockSkew is how much earlier than a position's time a partition is read that the position does
// not have: brokers may set the times of records, and their clocks may be behind ours.
const clockSkew = 5 * time.Minute

// leaderTimeout is how long a deposed broker may take itself for the leader, and report an old end
// of the log: KRaft gives up a broker after 9 s of silence. It is also how long Recall waits for
// partitions that do not answer, all together.
const leaderTimeout = 15 * time.Second

// Recall implements sinks.Recaller: it reads the partitions from the saved offsets on. Without the
// right to read, it warns and recalls nothing. A partition without a leader delays nothing: its
// lane reads it before its first batch.
func (s *Sink) Recall(ctx context.Context, from []byte, found func(messageID string)) error {
	if from == nil {
		return nil
	}
	saved, ok := readPosition(from)
	if !ok {
		s.log.Warn("can't read the position that the state has for this sink; what was sent just " +
			"before the last end may be sent again, with the same ids")
		return nil
	}
	s.recall.begin(saved, s.config.Topics.Max, found)
	s.pins.load(saved)
	s.applyPins()
	deadline := time.Now().Add(leaderTimeout)
	resume := make(map[string][]place, len(saved.Topics))
	for name, places := range saved.Topics {
		byPartition, err := s.recallTopic(ctx, name, places, deadline)
		if err != nil {
			return err
		}
		resume[name] = byPartition
	}
	s.recall.resume.Store(&resume)
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
	resume, err := s.recallTopic(ctx, name, places, deadline)
	if err == nil {
		s.recall.setResume(name, resume)
	}
	return err
}

// recallTopic reads a topic's partitions from the given places on, and the others from the time of
// the position on. For each given place it returns where the lane resumes; the place itself where
// it could not be read yet.
func (s *Sink) recallTopic(
	ctx context.Context, name string, places []place, deadline time.Time,
) ([]place, error) {
	c := s.connected()
	l, err := c.refresh(ctx, name)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		s.recall.postponeTopic(name) // deleted, or not yet known to a broker that has just started
		return places, nil
	}
	resume := make([]place, len(places))
	for p := range resume {
		resume[p] = unused
	}
	for p := 0; p < len(l.leaders) && err == nil; p++ {
		if p < len(places) {
			resume[p], err = s.recallPartition(ctx, newLane(s, c, name, p, 0), places[p], deadline)
		} else {
			_, err = s.recallPartition(ctx, newLane(s, c, name, p, 0), unused, deadline)
		}
	}
	switch {
	case err == nil:
	case unreadable(err):
		s.warnUnreadable(name, err)
	default:
		return nil, sinkError(ctx, fmt.Errorf("read back %s: %w", name, err))
	}
	s.recall.topicDone(name)
	return resume, nil
}

// recallPartition reads a partition from a place on, through a lane that is not in use. It gives up
// at the deadline when the partition does not answer.
func (s *Sink) recallPartition(
	ctx context.Context, l *lane, from place, deadline time.Time,
) (place, error) {
	l.deadline = deadline
	resume, err := unused, errGaveUp
	if time.Now().Before(deadline) {
		resume, err = l.readBack(ctx, &readback{saved: from, deadline: deadline}, s.recall.found)
	}
	if errors.Is(err, errGaveUp) {
		s.log.Warn("can't read a partition back now; it is read before its next event is sent, "+
			"and the others continue", "lane", l.name, "err", err)
		s.recall.postpone(l.topic, l.partition)
		return from, nil
	}
	return resume, err
}

func (s *Sink) warnUnreadable(topic string, err error) {
	s.log.Warn("can't read a topic back; what was sent just before the last end may be sent "+
		"again, with the same ids: "+
		"grant the bridge's user Read on the topic, or set the sink's recall "+
		"to false", "topic", topic, "err", err)
}
