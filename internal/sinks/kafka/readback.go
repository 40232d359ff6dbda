package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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

// ReadBack implements sinks.Recaller: it reads the partitions from the saved offsets on. Without
// the right to read, it warns and recalls nothing. A partition without a leader delays nothing: its
// lane reads it before its first batch.
func (s *Sink) ReadBack(ctx context.Context, from []byte, found func(messageID string)) error {
	if from == nil {
		return nil
	}
	saved, ok := readPosition(from)
	if !ok {
		s.log.Warn("can't read the position that the state has for this sink; what was sent just " +
			"before the last end may be sent again, with the same ids")
		return nil
	}
	s.recall.begin(saved, s.config.MaxTopics, found)
	s.pins.load(saved)
	s.applyPins()
	deadline := time.Now().Add(leaderTimeout)
	resume := make(map[string][]place, len(saved.Topics))
	for name, places := range saved.Topics {
		byPartition, err := s.readBackTopic(ctx, name, places, deadline)
		if err != nil {
			return err
		}
		resume[name] = byPartition
	}
	s.recall.resume.Store(&resume)
	for _, t := range s.inUse() {
		if err := s.readBackNew(ctx, t.name, deadline); err != nil {
			return err
		}
	}
	return nil
}

// readBackNew recalls a topic that was not read yet, if there is anything to recall.
func (s *Sink) readBackNew(ctx context.Context, name string, deadline time.Time) error {
	places, unread := s.recall.unreadTopic(name)
	if !unread {
		return nil
	}
	resume, err := s.readBackTopic(ctx, name, places, deadline)
	if err == nil {
		s.recall.setResume(name, resume)
	}
	return err
}

// readBackTopic reads a topic's partitions from the given places on, and the others from the time
// of the position on. For each given place it returns where the lane resumes; the place itself
// where it could not be read yet.
func (s *Sink) readBackTopic(
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
			resume[p], err = s.readBackPartition(ctx, newLane(s, c, name, p, 0), places[p], deadline)
		} else {
			_, err = s.readBackPartition(ctx, newLane(s, c, name, p, 0), unused, deadline)
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

// readBackPartition reads a partition from a place on, through a lane that is not in use. It gives
// up at the deadline when the partition does not answer.
func (s *Sink) readBackPartition(
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

// readBackState is the state of a Recall, kept for topics that are looked up later.
type readBackState struct {
	places places
	// Set by Recall before the first Lane, then constant until Close.
	saved position
	found func(messageID string) // nil: there is nothing to recall
	// Where lanes resume, by topic and partition: as many places as were saved, unused where there
	// is nothing to resume, the saved one where the partition is not read yet. The map is
	// immutable; it is replaced as a whole.
	resume atomic.Pointer[map[string][]place]

	mu sync.Mutex
	// guarded by mu, and never changed: the topics that a position keeps while they are idle
	idle   map[string]int64
	warned time.Time // guarded by mu: the last warning of a damaged batch
	// guarded by mu: topics that were looked up; false: and not found
	topics map[string]bool
	// guarded by mu: partitions that did not answer; their lanes read them first
	unread map[string]map[int]bool
}

// begin starts over after an earlier attempt. maxIdle is how many idle topics a position keeps.
func (r *readBackState) begin(saved position, maxIdle int, found func(string)) {
	r.reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.idle, r.found = saved, saved.idleSince(maxIdle), found
}

// reset ends all recalling.
func (r *readBackState) reset() {
	r.resume.Store(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.idle, r.found = position{}, nil, nil
	r.topics, r.unread = map[string]bool{}, map[string]map[int]bool{}
}

// resumePlace returns where a lane that has not started resumes, unused when there is nothing to
// resume.
func (r *readBackState) resumePlace(topic string, partition int) place {
	if resume := r.resume.Load(); resume != nil && partition < len((*resume)[topic]) {
		return (*resume)[topic][partition]
	}
	return unused
}

// idleTopics returns the places of those of the topics whose lanes can be resumed.
func (r *readBackState) idleTopics(idle map[string]int64) map[string][]place {
	topics := map[string][]place{}
	if resume := r.resume.Load(); resume != nil {
		for name, places := range *resume {
			if idle[name] != 0 &&
				slices.ContainsFunc(places, func(p place) bool { return p != unused }) {
				topics[name] = places
			}
		}
	}
	return topics
}

// idleSince returns the topics that have got nothing since the start and are kept, and since when
// they are idle.
func (r *readBackState) idleSince(inUse map[string][]place) map[string]int64 {
	r.mu.Lock()
	kept := r.idle
	r.mu.Unlock()
	idle := maps.Clone(kept)
	maps.DeleteFunc(idle, func(name string, _ int64) bool { return inUse[name] != nil })
	return idle
}

// unreadTopic reports whether a topic must still be read as a whole, and from where.
func (r *readBackState) unreadTopic(name string) (places []place, unread bool) {
	if r.found == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved.Topics[name], !r.topics[name]
}

// isUnread reports whether a partition must still be read.
func (r *readBackState) isUnread(topic string, partition int) bool {
	if r.found == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.topics[topic] || r.unread[topic][partition]
}

func (r *readBackState) topicDone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[name] = true
}

func (r *readBackState) postponeTopic(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[name] = false
}

func (r *readBackState) postpone(topic string, partition int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread[topic] == nil {
		r.unread[topic] = map[int]bool{}
	}
	r.unread[topic][partition] = true
}

// setResume sets where the lanes of a topic resume.
func (r *readBackState) setResume(topic string, resume []place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setResumeLocked(topic, resume)
}

func (r *readBackState) setResumeLocked(topic string, resume []place) {
	all := map[string][]place{}
	if before := r.resume.Load(); before != nil {
		all = maps.Clone(*before)
	}
	all[topic] = resume
	r.resume.Store(&all)
}

// partitionDone is called when a lane has read its partition, with the place where it resumes.
func (r *readBackState) partitionDone(topic string, partition int, resume place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unread[topic], partition)
	if before := r.resume.Load(); before != nil && partition < len((*before)[topic]) {
		left := slices.Clone((*before)[topic])
		left[partition] = resume
		r.setResumeLocked(topic, left)
	}
}

// positionTime is the time of a position that is taken now. While a partition without a saved place
// is unread, it is the saved position's time: the next process must read that partition from there.
func (r *readBackState) positionTime(now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, partitions := range r.unread {
		for p := range partitions {
			if r.saved.place(topic, p) == unused {
				return r.saved.Time
			}
		}
	}
	return now
}
