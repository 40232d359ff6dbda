package crash

import (
	"os"
	"path/filepath"
	"sort"
	"time"
)

// Phase is what a bridge was about when it was killed.
type Phase string

// The phases, as a report names them.
const (
	Committing    Phase = "while writing a commit"
	Listing       Phase = "while relisting"
	APIServerAway Phase = "while the API server was unavailable"
	Starting      Phase = "while starting"
	BrokerAway    Phase = "while a broker was cut off"
	Running       Phase = "at any other moment"
)

// Phases are all of them, in the order of a report.
var Phases = []Phase{Starting, Listing, Committing, APIServerAway, BrokerAway, Running}

// Life is one life of a bridge.
type Life struct {
	Began, Ended time.Time
	// LastCommit is when the write-ahead log of its state was last written to: no commit of this
	// life is later.
	LastCommit time.Time
}

// Outage is a time in which a sink was cut off. One that has not ended has no To.
type Outage struct{ From, To time.Time }

// touches reports whether the outage has a moment in common with a time.
func (o Outage) touches(from, to time.Time) bool {
	return !o.From.After(to) && (o.To.IsZero() || !o.To.Before(from))
}

// lifeAt is the place of the life that sent what a broker has from a time.
func lifeAt(lives []Life, at time.Time) int {
	return sort.Search(len(lives), func(i int) bool { return lives[i].Began.After(at) }) - 1
}

// LastWrite is when the write-ahead log in a state directory was last written to; zero when there
// is none. It asks the file system, so it needs nobody's word for what is durable.
func LastWrite(stateDir string) (last time.Time) {
	logs, err := filepath.Glob(filepath.Join(stateDir, "db", "*.log"))
	if err != nil { // of a bad pattern only
		panic(err)
	}
	for _, log := range logs {
		info, err := os.Stat(log)
		if err == nil && info.ModTime().After(last) { // a file that is gone meanwhile was not the last
			last = info.ModTime()
		}
	}
	return last
}
