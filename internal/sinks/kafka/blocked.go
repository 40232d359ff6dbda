package kafka

import (
	"errors"
	"fmt"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
)

// blocked are the lanes that wait for somebody to act: sending again alone is not likely to help.
type blocked struct {
	mu    sync.Mutex
	lanes map[*lane]error // guarded by mu
}

// note takes down why a lane could not do something a second time, where that is such a reason. The first time a look at where the leader is now may help.
func (b *blocked) note(l *lane, err error) {
	switch {
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		err = fmt.Errorf("topic %s, or its partition %d, is not there any more; create it anew, with as many partitions: %w", l.topic, l.partition, err)
	case errors.Is(err, errUnusable):
		err = fmt.Errorf("the leader of %s can't be used: %w", l.name, err)
	default:
		b.forget(l)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		b.lanes = map[*lane]error{}
	}
	b.lanes[l] = err
}

func (b *blocked) forget(l *lane) {
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
