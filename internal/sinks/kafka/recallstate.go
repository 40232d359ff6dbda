package kafka

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// recall is the state of a Recall, kept for topics that are looked up later.
type recall struct {
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
func (r *recall) begin(saved position, maxIdle int, found func(string)) {
	r.reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.idle, r.found = saved, saved.idleSince(maxIdle), found
}

// reset ends all recalling.
func (r *recall) reset() {
	r.resume.Store(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.idle, r.found = position{}, nil, nil
	r.topics, r.unread = map[string]bool{}, map[string]map[int]bool{}
}

// resumePlace returns where a lane that has not started resumes, unused when there is nothing to
// resume.
func (r *recall) resumePlace(topic string, partition int) place {
	if resume := r.resume.Load(); resume != nil && partition < len((*resume)[topic]) {
		return (*resume)[topic][partition]
	}
	return unused
}

// idleTopics returns the places of those of the topics whose lanes can be resumed.
func (r *recall) idleTopics(idle map[string]int64) map[string][]place {
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
func (r *recall) idleSince(inUse map[string][]place) map[string]int64 {
	r.mu.Lock()
	kept := r.idle
	r.mu.Unlock()
	idle := maps.Clone(kept)
	maps.DeleteFunc(idle, func(name string, _ int64) bool { return inUse[name] != nil })
	return idle
}

// unreadTopic reports whether a topic must still be read as a whole, and from where.
func (r *recall) unreadTopic(name string) (places []place, unread bool) {
	if r.found == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved.Topics[name], !r.topics[name]
}

// isUnread reports whether a partition must still be read.
func (r *recall) isUnread(topic string, partition int) bool {
	if r.found == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.topics[topic] || r.unread[topic][partition]
}

func (r *recall) topicDone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[name] = true
}

func (r *recall) postponeTopic(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[name] = false
}

func (r *recall) postpone(topic string, partition int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread[topic] == nil {
		r.unread[topic] = map[int]bool{}
	}
	r.unread[topic][partition] = true
}

// setResume sets where the lanes of a topic resume.
func (r *recall) setResume(topic string, resume []place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setResumeLocked(topic, resume)
}

func (r *recall) setResumeLocked(topic string, resume []place) {
	all := map[string][]place{}
	if before := r.resume.Load(); before != nil {
		all = maps.Clone(*before)
	}
	all[topic] = resume
	r.resume.Store(&all)
}

// partitionDone is called when a lane has read its partition, with the place where it resumes.
func (r *recall) partitionDone(topic string, partition int, resume place) {
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
func (r *recall) positionTime(now time.Time) time.Time {
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
