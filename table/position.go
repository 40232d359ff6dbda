package table

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/kubebridge/bridge/internal/sinks/source"
)

// Keys of the summary of a snapshot, and of the properties of the table.
const (
	keyPosition = "kubebridge.position"
	keySnapshot = "kubebridge.snapshot-rows"
	// keyBehind is the position behind which messages are in no snapshot rows yet.
	keyBehind = "kubebridge.snapshot-position"
	// keyRetained is the midnight before which rows were removed.
	keyRetained = "kubebridge.retained"
)

// position is how far the table is, and which commit brought it there.
type position struct {
	Lanes source.Position `json:"lanes"`
	// Newest is when the newest message of each lane was stored.
	Newest map[string]time.Time `json:"newest,omitempty"`
	// Snapshot is the newest midnight whose snapshot rows are in the table: a table that is rolled
	// back has those of then. nil: an earlier version has written the position.
	Snapshot *time.Time `json:"snapshot,omitempty"`
	// Incarnation counts how often a stream was recreated. Began has the incarnations in which
	// lanes began again; the others began in the first one.
	Incarnation int64            `json:"incarnation,omitempty"`
	Began       map[string]int64 `json:"began,omitempty"`
	// Writer and Commit are random: which process has made the commit, and which of its commits it
	// was. A commit is sent again under its own name only.
	Writer string `json:"writer"`
	Commit string `json:"commit"`
	// Sequence is the table's sequence number of the snapshot before.
	Sequence int64 `json:"after"`
}

// clone returns a position that shares nothing with p.
func (p *position) clone() position {
	c := *p
	c.Lanes, c.Newest, c.Began = maps.Clone(p.Lanes), maps.Clone(p.Newest), maps.Clone(p.Began)
	return c
}

func (p *position) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has texts, numbers and times
	}
	return string(text)
}

func parsePosition(text string) (*position, error) {
	p := &position{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("the position in the table can't be read: %w", err)
	}
	return p, nil
}
