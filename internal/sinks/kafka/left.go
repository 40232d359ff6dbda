package kafka

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// recall is what a Recall goes by, kept for topics that are met later.
type recall struct {
	places places
	// Set by Recall before the first Lane, then constant until Close.
	saved position
	found func(messageID string) // nil: there is nothing to recall
	// What lanes carry on with, by topic and partition: as many places as were saved, unused where nothing is left, the saved one where the partition is not read yet.
	// What is here does not change, but for being replaced as a whole.
	heirs atomic.Pointer[map[string][]place]

	mu     sync.Mutex
	warned time.Time               // guarded by mu: when a damaged batch was last told of
	topics map[string]bool         // guarded by mu: those that were looked for; false: and not found
	unread map[string]map[int]bool // guarded by mu: partitions of those that did not answer; their lanes read them first
}

// begin forgets an earlier attempt.
func (r *recall) begin(saved position, found func(string)) {
	r.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.found = saved, found
}

// forget ends all recalling.
func (r *recall) forget() {
	r.heirs.Store(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved, r.found = position{}, nil
	r.topics, r.unread = map[string]bool{}, map[string]map[int]bool{}
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

// unreadTopic says whether a topic has still to be read as a whole, and from where.
func (r *recall) unreadTopic(name string) (places []place, unread bool) {
	if r.found == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved.Topics[name], !r.topics[name]
}

// isUnread says whether a partition has still to be read.
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

// leave notes what the lanes of a topic carry on with.
func (r *recall) leave(topic string, left []place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(topic, left)
}

func (r *recall) leaveLocked(topic string, left []place) {
	heirs := map[string][]place{}
	if before := r.heirs.Load(); before != nil {
		heirs = maps.Clone(*before)
	}
	heirs[topic] = left
	r.heirs.Store(&heirs)
}

// done notes that a lane has read its partition, and what it carries on with.
func (r *recall) done(topic string, partition int, heir place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unread[topic], partition)
	if before := r.heirs.Load(); before != nil && partition < len((*before)[topic]) {
		left := slices.Clone((*before)[topic])
		left[partition] = heir
		r.leaveLocked(topic, left)
	}
}

// since is the time of a position that is taken now. While a partition is not read that has no place, it is that of the saved one: from there it has to be looked for.
func (r *recall) since(now time.Time) time.Time {
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
