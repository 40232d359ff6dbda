package kafka

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// position is how far the partitions are written: for each topic, by partition, the offset behind the last record that this sink knows to
// be stored; -1 where it has not written yet.
type position struct {
	Version int                `json:"v"`
	Topics  map[string][]int64 `json:"topics"`
	// Time at which it was last another one. Partitions that it does not hold have got nothing from this sink before it.
	Time time.Time `json:"time"`
}

const positionVersion = 1

// places keeps the last position, so that the same place has the same bytes.
type places struct {
	mu    sync.Mutex
	last  position
	bytes []byte
}

// Position implements sinks.Recaller.
func (s *Sink) Position() []byte {
	now := time.Now() // before the offsets: what a new lane writes is later
	topics := s.offsets()
	p := &s.recall.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes != nil && maps.EqualFunc(p.last.Topics, topics, slices.Equal[[]int64]) {
		return p.bytes
	}
	p.last = position{Version: positionVersion, Topics: topics, Time: now.UTC()}
	p.bytes, _ = json.Marshal(&p.last) // strings, numbers and a time
	return p.bytes
}

// offsets are the ends of all lanes.
func (s *Sink) offsets() map[string][]int64 {
	topics := map[string][]int64{}
	for _, t := range s.inUse() {
		ends := make([]int64, len(t.lanes))
		for i, l := range t.lanes {
			ends[i] = l.end.Load()
		}
		topics[t.name] = ends
	}
	return topics
}

// readPosition reads what Position gave; false when there is nothing that this version can read.
func readPosition(saved []byte) (position, bool) {
	var p position
	decoder := json.NewDecoder(bytes.NewReader(saved))
	if err := decoder.Decode(&p); err != nil || p.Version != positionVersion {
		return position{}, false
	}
	return p, true
}
