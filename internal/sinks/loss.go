package sinks

import (
	"fmt"
	"sync"
)

// Reasons of a Loss.
const (
	// Recreated: the topic or stream was deleted, and one of its name made.
	Recreated = "recreated"
	// Purged: messages were deleted, and the topic or stream is the same.
	Purged = "purged"
	// Truncated: the end is before what was acknowledged, after an unclean election or a restore.
	Truncated = "truncated"
)

// Reasons are the reasons of losses.
var Reasons = []string{Recreated, Purged, Truncated}

// Loss is a topic, a partition or a stream that does not hold any more what it has acknowledged.
type Loss struct {
	Destination string // "k8s.prod.pods/3", "K8S"
	Reason      string
	// Before is the end of what was acknowledged, Now the end of what is there: offsets or
	// sequences.
	Before, Now uint64
}

func (l Loss) String() string {
	return fmt.Sprintf("%s was %s: it had acknowledged up to %d, and ends at %d", l.Destination,
		l.Reason, l.Before, l.Now)
}

// Losses collects losses until Inspect returns them. Its methods may be called concurrently.
type Losses struct {
	mu   sync.Mutex
	list []Loss // guarded by mu
}

// Add adds a loss.
func (l *Losses) Add(loss Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, loss)
}

// Take returns the losses since the last call.
func (l *Losses) Take() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}
