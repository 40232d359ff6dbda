package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// recall is what a Recall goes by, kept for topics that are met later.
type recall struct {
	places places
	// Set by Recall before the first Lane, then constant.
	saved position
	found func(messageID string) // nil: there is nothing to recall
	heirs map[string]heritage    // by lane
}

// skew is how much earlier than a position's time a partition that it does not hold is read: brokers may set the times of records, and their
// clocks may be behind ours.
const skew = 5 * time.Minute

// Recall implements sinks.Recaller: it reads the partitions from the saved offsets on. Without the right to read, it says so and recalls nothing.
func (s *Sink) Recall(ctx context.Context, from []byte, found func(messageID string)) error {
	if from == nil {
		return nil
	}
	saved, ok := readPosition(from)
	if !ok {
		s.log.Warn("can't read the position that the state has for this sink; what was sent just before the last end may be sent again, with the same ids")
		return nil
	}
	s.recall.saved, s.recall.found, s.recall.heirs = saved, found, map[string]heritage{}
	s.spreads.learn(saved)
	s.respread()
	for name, places := range saved.Topics {
		if err := s.recallTopic(ctx, name, places); err != nil {
			return err
		}
	}
	for _, t := range s.inUse() {
		if err := s.recallNew(ctx, t.name); err != nil {
			return err
		}
	}
	return nil
}

// recallNew recalls a topic that the saved position does not hold, if there is one.
func (s *Sink) recallNew(ctx context.Context, name string) error {
	if _, ok := s.recall.saved.Topics[name]; ok || s.recall.found == nil {
		return nil
	}
	return s.recallTopic(ctx, name, nil)
}

// recallTopic reads a topic's partitions from the given places on, and the others from the time of the position on.
func (s *Sink) recallTopic(ctx context.Context, name string, places []place) error {
	c := s.connected()
	l, err := c.refresh(ctx, name)
	for p := 0; p < len(l.leaders) && err == nil; p++ {
		from := unused
		if p < len(places) {
			from = places[p]
		}
		// A lane that belongs to nobody: it has the patience of one.
		err = newLane(s, c, name, p, 0).recall(ctx, from)
	}
	switch {
	case err == nil, errors.Is(err, kafkago.UnknownTopicOrPartition):
		return nil
	case sort(err) == denied:
		s.log.Warn("can't read a topic back; what was sent just before the last end may be sent again, with the same ids: "+
			"grant the bridge's user Read on the topic, or set the sink's recall to false", "topic", name, "err", err)
		return nil
	default:
		return classify(ctx, fmt.Errorf("read back %s: %w", name, err))
	}
}

// recall reads the lane's partition from a place on; from a little before the time of the saved position when that is unused.
func (l *lane) recall(ctx context.Context, saved place) error {
	start, end, err := l.bounds(ctx)
	if err != nil {
		return err
	}
	from := saved.offset
	if from < 0 {
		since := l.sink.recall.saved.Time.Add(-skew).UnixMilli()
		err = l.until(ctx, "read back", func() (err error) {
			from, err = l.cluster.offset(ctx, l.topic, l.partition, since)
			return err
		})
		if err != nil || from < 0 {
			return err // nothing is as late
		}
	}
	batches, err := l.walk(ctx, max(start, from), end, func(r *protocol.Record) error {
		if id := messageID(r); id != "" {
			l.sink.recall.found(id)
		}
		return nil
	})
	if h, ok := inheritance(saved, batches, end); ok && err == nil && start <= from && from <= end {
		l.sink.recall.heirs[l.name] = h
	}
	return err
}

// messageID is the id of a record that a bridge has sent, "" for another.
func messageID(r *protocol.Record) string {
	var informer, id string
	for _, h := range r.Headers {
		switch h.Key {
		case informerHeader:
			informer = string(h.Value)
		case "ce_id":
			id = string(h.Value)
		}
	}
	if id == "" && informer != "" && r.Value != nil {
		var e struct{ ID string }
		if value, err := protocol.ReadAll(r.Value); err != nil || json.Unmarshal(value, &e) != nil {
			return "" // not one of ours
		}
		id = e.ID
	}
	if id == "" {
		return ""
	}
	return informer + "/" + id
}
