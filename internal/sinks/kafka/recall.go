package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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
	// What lanes carry on with, by topic and partition: as many places as were saved, unused where nothing is left. It does not change once it is here.
	heirs atomic.Pointer[map[string][]place]
}

// heir is what a lane that has not started carries on with, unused when there is nothing.
func (r *recall) heir(topic string, partition int) place {
	if heirs := r.heirs.Load(); heirs != nil && partition < len((*heirs)[topic]) {
		return (*heirs)[topic][partition]
	}
	return unused
}

// idle are the places of topics that have lanes to carry on, and have got nothing since the start.
func (r *recall) idle(inUse map[string][]place) map[string][]place {
	idle := map[string][]place{}
	if heirs := r.heirs.Load(); heirs != nil {
		for name, places := range *heirs {
			if _, ok := inUse[name]; !ok && slices.ContainsFunc(places, func(p place) bool { return p != unused }) {
				idle[name] = places
			}
		}
	}
	return idle
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
	s.recall.saved, s.recall.found = saved, found
	s.spreads.learn(saved)
	s.respread()
	heirs := make(map[string][]place, len(saved.Topics))
	for name, places := range saved.Topics {
		left, err := s.recallTopic(ctx, name, places)
		if err != nil {
			return err
		}
		heirs[name] = left
	}
	s.recall.heirs.Store(&heirs)
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
	_, err := s.recallTopic(ctx, name, nil)
	return err
}

// recallTopic reads a topic's partitions from the given places on, and the others from the time of the position on. It gives what their lanes carry
// on with, for each of the places.
func (s *Sink) recallTopic(ctx context.Context, name string, places []place) ([]place, error) {
	heirs := slices.Repeat([]place{unused}, len(places))
	c := s.connected()
	l, err := c.refresh(ctx, name)
	deadline := time.Now().Add(deposed)
	for p := 0; p < len(l.leaders) && err == nil; p++ {
		// A lane that belongs to nobody: it has the patience of one.
		lane := newLane(s, c, name, p, 0)
		if p < len(places) {
			heirs[p], err = lane.recall(ctx, places[p], deadline)
		} else {
			_, err = lane.recall(ctx, unused, deadline)
		}
	}
	switch {
	case err == nil, errors.Is(err, kafkago.UnknownTopicOrPartition):
		return heirs, nil
	case unreadable(err):
		s.log.Warn("can't read a topic back; what was sent just before the last end may be sent again, with the same ids: "+
			"grant the bridge's user Read on the topic, or set the sink's recall to false", "topic", name, "err", err)
		return heirs, nil
	default:
		return nil, classify(ctx, fmt.Errorf("read back %s: %w", name, err))
	}
}

// deposed is how long a broker may take itself for the leader that is none any more, and name an end of the log that was passed long ago.
const deposed = 5 * time.Second

// recall reads the lane's partition from a place on; from a little before the time of the saved position when that is unused. It gives what the lane
// carries on with, unused when the log does not tell.
func (l *lane) recall(ctx context.Context, saved place, deadline time.Time) (place, error) {
	start, end, err := l.boundsBehind(ctx, saved.offset, deadline)
	if err != nil {
		return unused, err
	}
	from := saved.offset
	if from < 0 {
		since := l.sink.recall.saved.Time.Add(-skew).UnixMilli()
		err = l.until(ctx, "read back", func() (err error) {
			from, err = l.cluster.offset(ctx, l.topic, l.partition, since)
			return err
		})
		if err != nil || from < 0 {
			return unused, err // nothing is as late
		}
	}
	batches, err := l.walk(ctx, max(start, from), end, func(r *protocol.Record) error {
		if id := messageID(r); id != "" {
			l.sink.recall.found(id)
		}
		return nil
	})
	if err != nil || start > from || from > end {
		return unused, err
	}
	return inheritance(saved, batches, end), nil
}

// boundsBehind are the two ends of the lane's log, which is known to have reached an offset. A log that ends before it for longer is another one: the
// topic was made anew, or has lost records.
func (l *lane) boundsBehind(ctx context.Context, offset int64, deadline time.Time) (start, end int64, err error) {
	for {
		start, end, err = l.bounds(ctx)
		if err != nil || end >= offset || time.Now().After(deadline) {
			return start, end, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return 0, 0, err
		}
		_, _ = l.cluster.refresh(ctx, l.topic) // what it can't tell, bounds will
	}
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
