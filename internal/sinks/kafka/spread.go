package kafka

import (
	"maps"
	"sync"
)

// What is done with partitions that a topic has got since an earlier run.
const (
	// KeepPartitions spreads events over as many partitions as before.
	KeepPartitions = "keep"
	// UsePartitions spreads them over all: the later events of an object may be in another partition than the earlier ones.
	UsePartitions = "use"
)

// spreads is over how many partitions the events of each topic went in earlier runs, as the saved position has it.
type spreads struct {
	mu     sync.Mutex
	before map[string]int // guarded by mu; replaced and never changed
}

// learn takes it from a saved position.
func (s *spreads) learn(saved position) {
	before := maps.Clone(saved.Partitions)
	if before == nil {
		before = map[string]int{}
	}
	for name, places := range saved.Topics {
		before[name] = len(places)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *spreads) of(topic string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before[topic]
}

// idle are the topics that are not among those in use: what is known of them holds on.
func (s *spreads) idle(inUse map[string][]place) map[string]int {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	var idle map[string]int
	for name, n := range before {
		if _, ok := inUse[name]; ok {
			continue
		}
		if idle == nil {
			idle = map[string]int{}
		}
		idle[name] = n
	}
	return idle
}

// spread is over how many partitions the events of a topic are spread, which has so many now. One that has grown moves keys: Kafka's consumers
// read partitions side by side, so that an object's later events could be read before its earlier ones.
func (s *Sink) spread(topic string, now int) int {
	before := s.spreads.of(topic)
	if before == 0 || before >= now {
		return now // new, or made anew
	}
	log := s.log.With("topic", topic, "partitions", now, "before", before)
	if s.config.NewPartitions == UsePartitions {
		log.Warn("topic has more partitions than in the last run, and all are used: later events of an object may be in another partition than its earlier ones")
		return now
	}
	log.Warn("topic has more partitions than in the last run; events stay in those of before, so that each object's are in one: " +
		"when consumers have read what is there, set newPartitions: use, and restart the bridge")
	return before
}

// respread takes partitions from the topics that were met before it was known over how many their events are spread.
func (s *Sink) respread() {
	for _, t := range s.inUse() {
		if n := s.spread(t.name, len(t.lanes)); n < len(t.lanes) {
			s.mu.Lock()
			s.topics[t.name] = &topic{name: t.name, most: t.most, lanes: t.lanes[:n:n], partitions: t.partitions}
			s.mu.Unlock()
		}
	}
	s.countUnused()
}

// countUnused shows how many partitions of the topics in use get nothing.
func (s *Sink) countUnused() {
	unused := 0
	for _, t := range s.inUse() {
		unused += max(0, t.partitions-len(t.lanes))
	}
	s.metrics.unused.Set(float64(unused))
}
