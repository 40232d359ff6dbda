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
// of the log: KRaft gives up a broker after 9 s of silence. It is also how long ReadBack waits for
// partitions that do not answer, all together.
const leaderTimeout = 15 * time.Second

// ReadBack implements sinks.ReadBacker: it reads the partitions from the saved offsets on. Without
// the right to read, it warns and reads nothing back. A partition without a leader delays nothing:
// its lane reads it before its first batch.
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
	s.readBack.begin(saved, s.config.MaxTopics, found)
	s.pins.load(saved)
	s.applyPins()
	deadline := time.Now().Add(leaderTimeout)
	resume := make(map[string][]savedOffset, len(saved.Topics))
	for name, offsets := range saved.Topics {
		byPartition, err := s.readBackTopic(ctx, name, offsets, deadline)
		if err != nil {
			return err
		}
		resume[name] = byPartition
	}
	s.readBack.resume.Store(&resume)
	for _, t := range s.inUse() {
		if err := s.readBackNew(ctx, t.name, deadline); err != nil {
			return err
		}
	}
	return nil
}

// readBackNew reads a topic back that was not read yet, if there is anything to read.
func (s *Sink) readBackNew(ctx context.Context, name string, deadline time.Time) error {
	offsets, unread := s.readBack.unreadTopic(name)
	if !unread {
		return nil
	}
	resume, err := s.readBackTopic(ctx, name, offsets, deadline)
	if err == nil {
		s.readBack.setResume(name, resume)
	}
	return err
}

// readBackTopic reads a topic's partitions from the given offsets on, and the others from the time
// of the position on. For each given offset it returns where the lane resumes; the saved offset
// itself where it could not be read yet.
func (s *Sink) readBackTopic(
	ctx context.Context, name string, offsets []savedOffset, deadline time.Time,
) ([]savedOffset, error) {
	c := s.connected()
	l, err := c.refresh(ctx, name)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		s.readBack.postponeTopic(name) // deleted, or not yet known to a broker that has just started
		return offsets, nil
	}
	resume := make([]savedOffset, len(offsets))
	for p := range resume {
		resume[p] = unused
	}
	for p := 0; p < len(l.leaders) && err == nil; p++ {
		if p < len(offsets) {
			resume[p], err = s.readBackPartition(ctx, newLane(s, c, name, p, 0), offsets[p], deadline)
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
	s.readBack.topicDone(name)
	return resume, nil
}

// readBackPartition reads a partition from a saved offset on, through a lane that is not in use. It
// gives up at the deadline when the partition does not answer.
func (s *Sink) readBackPartition(
	ctx context.Context, l *lane, from savedOffset, deadline time.Time,
) (savedOffset, error) {
	l.deadline = deadline
	r := &readback{saved: from, deadline: deadline}
	resume, err := unused, errGaveUp
	if time.Now().Before(deadline) {
		resume, err = l.readBack(ctx, r, s.readBack.found)
	}
	if errors.Is(err, errGaveUp) {
		s.log.Warn("can't read a partition back now; it is read before its next event is sent, "+
			"and the others continue", "lane", l.name, "err", err)
		s.readBack.postpone(l.topic, l.partition, r.shortSince)
		return from, nil
	}
	return resume, err
}

func (s *Sink) warnUnreadable(topic string, err error) {
	s.log.Warn("can't read a topic back; what was sent just before the last end may be sent "+
		"again, with the same ids: grant the bridge's user Read on the topic, or set the sink's "+
		"readBack to false", "topic", topic, "err", err)
}

// readBackState is the state of a ReadBack, kept for topics that are looked up later.
type readBackState struct {
	lastPosition lastPosition
	// Set by ReadBack before the first Lane, then constant until Close.
	saved position
	found func(messageID string) // nil: there is nothing to read back
	// Where lanes resume, by topic and partition: as many offsets as were saved, unused where there
	// is nothing to resume, the saved one where the partition is not read yet. The map is
	// immutable; it is replaced as a whole.
	resume atomic.Pointer[map[string][]savedOffset]

	mu sync.Mutex
	// guarded by mu, and never changed: the topics that a position keeps while they are idle
	idle   map[string]int64
	warned time.Time // guarded by mu: the last warning of a damaged batch
	// guarded by mu: topics that were looked up; false: and not found
	topics map[string]bool
	// guarded by mu: partitions that did not answer, or ended before the saved offset, and since
	// when they do; their lanes read them first
	unread map[string]map[int]time.Time
}

// begin starts over after an earlier attempt. maxIdle is how many idle topics a position keeps.
func (r *readBackState) begin(saved position, maxIdle int, found func(string)) {
	r.reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.idle, r.found = saved, saved.idleSince(maxIdle), found
}

// reset ends all reading back.
func (r *readBackState) reset() {
	r.resume.Store(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.idle, r.found = position{}, nil, nil
	r.topics, r.unread = map[string]bool{}, map[string]map[int]time.Time{}
}

// resumeAt returns where a lane that has not started resumes, unused when there is nothing to
// resume.
func (r *readBackState) resumeAt(topic string, partition int) savedOffset {
	if resume := r.resume.Load(); resume != nil && partition < len((*resume)[topic]) {
		return (*resume)[topic][partition]
	}
	return unused
}

// savedAt returns the saved offset of a partition; resumeAt is behind what was read there.
func (r *readBackState) savedAt(topic string, partition int) savedOffset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved.lookup(topic, partition)
}

// views returns the saved offsets of the views that were there when the position was saved.
func (r *readBackState) views() map[string][]savedOffset {
	r.mu.Lock()
	defer r.mu.Unlock()
	views := map[string][]savedOffset{}
	if resume := r.resume.Load(); resume != nil {
		for name, offsets := range r.saved.Topics {
			if (*resume)[name] != nil && // nil: forget
				slices.ContainsFunc(offsets, func(p savedOffset) bool { return p.start >= 0 }) {
				views[name] = offsets
			}
		}
	}
	return views
}

// forget is called when a topic is gone: what is made in its place is a new one.
func (r *readBackState) forget(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[topic] = true
	delete(r.unread, topic)
	r.setResumeLocked(topic, nil)
}

// idleTopics returns the offsets of those of the topics whose lanes can be resumed.
func (r *readBackState) idleTopics(idle map[string]int64) map[string][]savedOffset {
	topics := map[string][]savedOffset{}
	if resume := r.resume.Load(); resume != nil {
		for name, offsets := range *resume {
			if idle[name] != 0 &&
				slices.ContainsFunc(offsets, func(p savedOffset) bool { return p != unused }) {
				topics[name] = offsets
			}
		}
	}
	return topics
}

// idleSince returns the topics that have got nothing since the start and are kept, and since when
// they are idle.
func (r *readBackState) idleSince(inUse map[string][]savedOffset) map[string]int64 {
	r.mu.Lock()
	kept := r.idle
	r.mu.Unlock()
	idle := maps.Clone(kept)
	maps.DeleteFunc(idle, func(name string, _ int64) bool { return inUse[name] != nil })
	return idle
}

// unreadTopic reports whether a topic must still be read as a whole, and from where.
func (r *readBackState) unreadTopic(name string) (offsets []savedOffset, unread bool) {
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
	_, unread := r.unread[topic][partition]
	return unread || !r.topics[topic]
}

// shortSince is since when an unread partition ends before its saved offset; zero where it is not
// known to.
func (r *readBackState) shortSince(topic string, partition int) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unread[topic][partition]
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

func (r *readBackState) postpone(topic string, partition int, shortSince time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread[topic] == nil {
		r.unread[topic] = map[int]time.Time{}
	}
	r.unread[topic][partition] = shortSince
}

// setResume sets where the lanes of a topic resume.
func (r *readBackState) setResume(topic string, resume []savedOffset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setResumeLocked(topic, resume)
}

func (r *readBackState) setResumeLocked(topic string, resume []savedOffset) {
	all := map[string][]savedOffset{}
	if before := r.resume.Load(); before != nil {
		all = maps.Clone(*before)
	}
	all[topic] = resume
	r.resume.Store(&all)
}

// partitionDone is called when a lane has read its partition, with the saved offset where it
// resumes.
func (r *readBackState) partitionDone(topic string, partition int, resume savedOffset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unread[topic], partition)
	if before := r.resume.Load(); before != nil && partition < len((*before)[topic]) {
		left := slices.Clone((*before)[topic])
		left[partition] = resume
		r.setResumeLocked(topic, left)
	}
}

// positionTime is the time of a position that is taken now. While a partition without a saved
// offset is unread, it is the saved position's time: the next process must read that partition from
// there.
func (r *readBackState) positionTime(now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, partitions := range r.unread {
		for p := range partitions {
			if r.saved.lookup(topic, p) == unused {
				return r.saved.Time
			}
		}
	}
	return now
}
