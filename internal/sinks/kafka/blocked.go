package kafka

import (
	"errors"
	"fmt"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
)

// blocked has the lanes that need an operator: retrying alone is not likely to help.
type blocked struct {
	mu    sync.Mutex
	lanes map[*lane]error // guarded by mu
}

// set records why a lane failed for the second time, if an operator must act. The first failure may
// end when the lane looks up the partition's leader.
func (b *blocked) set(l *lane, err error) {
	switch {
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		err = fmt.Errorf("topic %s, or its partition %d, does not exist any more; create it "+
			"again, with as many partitions: %w", l.topic, l.partition, err)
	case errors.Is(err, errClock):
		err = fmt.Errorf("publish to %s: %w", l.name, err)
	case errors.Is(err, errUnusable):
		err = fmt.Errorf("the leader of %s can't be used: %w", l.name, err)
	default:
		b.clear(l)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		b.lanes = map[*lane]error{}
	}
	b.lanes[l] = err
}

func (b *blocked) clear(l *lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lanes, l)
}

// Blocked implements sinks.Blocker: it names the first of the lanes.
func (s *Sink) Blocked() error {
	s.blocked.mu.Lock()
	defer s.blocked.mu.Unlock()
	var first *lane
	for l := range s.blocked.lanes {
		if first == nil || l.name < first.name {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	if n := len(s.blocked.lanes); n > 1 {
		return fmt.Errorf("%d partitions wait; the first: %w", n, s.blocked.lanes[first])
	}
	return s.blocked.lanes[first]
}
