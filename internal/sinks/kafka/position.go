package kafka

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// position is a saved sink position: how far the partitions are written.
type position struct {
	Version int `json:"v"`
	// Topics hold a place for each partition.
	Topics map[string][]place `json:"topics"`
	// Partitions is how many partitions of further topics get events: topics that had none since
	// the start.
	Partitions map[string]int `json:"partitions,omitempty"`
	// Idle are the topics of both that had no event since the start, with the time of the last
	// position that had them in use, in Unix seconds.
	Idle map[string]int64 `json:"idle,omitempty"`
	// Time of the last change. Partitions that are missing here have got nothing from this sink
	// before it, or were read back in this run and got nothing since (see idleSince).
	Time time.Time `json:"time"`
}

const positionVersion = 1

// place is the offset behind the last record of a partition that this sink knows to be stored, and
// how its producer continues there.
type place struct {
	offset   int64
	producer int64
	epoch    int16
	sequence int32
}

// unused is the place of a partition that the sink has not written to.
var unused = place{offset: -1, producer: -1}

// place returns that of a partition, unused when there is none.
func (p position) place(topic string, partition int) place {
	if places := p.Topics[topic]; partition < len(places) {
		return places[partition]
	}
	return unused
}

// MarshalJSON is short: there is one for each partition.
func (p place) MarshalJSON() ([]byte, error) {
	return json.Marshal([...]int64{p.offset, p.producer, int64(p.epoch), int64(p.sequence)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *place) UnmarshalJSON(b []byte) error {
	var n [4]int64
	err := json.Unmarshal(b, &n)
	*p = place{n[0], n[1], int16(n[2]), int32(n[3])}
	return err
}

// places keeps the last position, so that an unchanged position has the same bytes.
type places struct {
	mu    sync.Mutex
	last  position
	bytes []byte
}

// Position implements sinks.Recaller.
func (s *Sink) Position() []byte {
	now := time.Now() // before the offsets are read: what a new lane writes is later
	topics, idle := s.allPlaces()
	partitions := s.pins.idle(topics, idle)
	p := &s.recall.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes != nil && maps.EqualFunc(p.last.Topics, topics, slices.Equal[[]place]) &&
		maps.Equal(p.last.Partitions, partitions) && maps.Equal(p.last.Idle, idle) {
		return p.bytes
	}
	p.last = position{
		Version: positionVersion, Topics: topics, Partitions: partitions, Idle: idle,
		Time: s.recall.positionTime(now).UTC(),
	}
	p.bytes, _ = json.Marshal(&p.last) // can't fail: strings, numbers and a time
	return p.bytes
}

// allPlaces returns the places of all lanes, and which idle topics are kept. A lane that has not
// started is where an earlier process has left it.
func (s *Sink) allPlaces() (topics map[string][]place, idle map[string]int64) {
	topics = map[string][]place{}
	for _, t := range s.inUse() {
		places := make([]place, len(t.lanes))
		for i, l := range t.lanes {
			if p := l.place.Load(); p != nil {
				places[i] = *p
			} else {
				places[i] = s.recall.resumePlace(t.name, i)
			}
		}
		topics[t.name] = places
	}
	idle = s.recall.idleSince(topics)
	maps.Copy(topics, s.recall.idleTopics(idle))
	return topics, idle
}

// Outline implements sinks.Outliner: it keeps how many partitions of each topic get events, and the
// time, from which new partitions are read; not the places, nor how their producers continue.
func (s *Sink) Outline(saved []byte) []byte {
	p, ok := readPosition(saved)
	if !ok {
		return nil
	}
	out := position{
		Version: positionVersion, Partitions: maps.Clone(p.Partitions), Idle: p.Idle, Time: p.Time,
	}
	if out.Partitions == nil {
		out.Partitions = map[string]int{}
	}
	for name, places := range p.Topics {
		out.Partitions[name] = len(places)
	}
	b, _ := json.Marshal(&out)
	return b
}

// readPosition reads what Position returned; false when this version can't read it.
func readPosition(saved []byte) (position, bool) {
	var p position
	decoder := json.NewDecoder(bytes.NewReader(saved))
	if err := decoder.Decode(&p); err != nil || p.Version != positionVersion {
		return position{}, false
	}
	return p, true
}

// idleSince returns the topics of a position that the next run keeps as long as they get nothing,
// and since when they are idle. Of more than most it leaves out those that are idle longest: topics
// that are named by labels would add up over restarts. It keeps what the last run wrote to: a batch
// there may not be visible yet.
func (p position) idleSince(most int) map[string]int64 {
	since := map[string]int64{}
	for _, names := range []iter.Seq[string]{maps.Keys(p.Topics), maps.Keys(p.Partitions)} {
		for name := range names {
			since[name] = cmp.Or(p.Idle[name], p.Time.Unix())
		}
	}
	newest := slices.SortedFunc(maps.Keys(since), func(a, b string) int {
		return cmp.Or(cmp.Compare(since[b], since[a]), strings.Compare(a, b))
	})
	for _, name := range newest[min(most, len(newest)):] {
		if p.Idle[name] != 0 {
			delete(since, name)
		}
	}
	return since
}
