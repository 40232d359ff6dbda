package kafka

import (
	"maps"
	"sync"
)

// What happens with partitions that a topic has got since an earlier run.
const (
	// KeepPartitions uses as many partitions as before.
	KeepPartitions = "keep"
	// UsePartitions uses all: the later events of an object may be in another partition than the
	// earlier ones.
	UsePartitions = "use"
)

// partitionPins has how many partitions of each topic got events in earlier runs, by the saved
// position.
type partitionPins struct {
	mu     sync.Mutex
	pinned map[string]int // guarded by mu; replaced and never changed
}

// load takes the pins from a saved position.
func (s *partitionPins) load(saved position) {
	before := maps.Clone(saved.Partitions)
	if before == nil {
		before = map[string]int{}
	}
	for name, places := range saved.Topics {
		before[name] = len(places)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned = before
}

func (s *partitionPins) of(topic string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinned[topic]
}

// idle returns the pins of idle topics that have no places: they stay valid.
func (s *partitionPins) idle(places map[string][]place, idle map[string]int64) map[string]int {
	s.mu.Lock()
	before := s.pinned
	s.mu.Unlock()
	pins := map[string]int{}
	for name := range idle {
		if n := before[name]; n > 0 && places[name] == nil {
			pins[name] = n
		}
	}
	return pins
}

// pinnedPartitions returns how many partitions of a topic get events. now is how many it has. More
// partitions move keys: Kafka's consumers read partitions concurrently, so that an object's later
// events could be read before its earlier ones.
func (s *Sink) pinnedPartitions(topic string, now int) int {
	before := s.pins.of(topic)
	if before == 0 || before >= now {
		return now // new, or recreated
	}
	log := s.log.With("topic", topic, "partitions", now, "before", before)
	if s.config.Topics.NewPartitions == UsePartitions {
		log.Warn("topic has more partitions than in the last run, and all are used: later events " +
			"of an object may be in another partition than its earlier ones")
		return now
	}
	log.Warn("topic has more partitions than in the last run; events stay in those of before, so " +
		"that each object's are in one: " +
		"when consumers have read what is there, set newPartitions: use, and restart the bridge")
	return before
}

// applyPins removes partitions from the topics that were looked up before the pins were known.
func (s *Sink) applyPins() {
	for _, t := range s.inUse() {
		if n := s.pinnedPartitions(t.name, len(t.lanes)); n < len(t.lanes) {
			s.mu.Lock()
			s.topics[t.name] = &topic{
				name: t.name, maxMessageBytes: t.maxMessageBytes,
				lanes: t.lanes[:n:n], partitions: t.partitions,
			}
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
