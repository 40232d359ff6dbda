package refused

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
)

// ErrIncomplete is of an event that could not be made: it lacks its payload, and is not what
// happened.
var ErrIncomplete = errors.New("the event could not be made and has no payload: remove it, and " +
	"send the present state of its object with 'bridge snapshot'")

// Routing is what a sink needs of an event besides its attributes.
type Routing struct {
	Cluster       string `json:"cluster,omitempty"`
	Part          int    `json:"part,omitempty"`
	CompactionKey string `json:"compactionKey,omitempty"`
	Run           string `json:"run,omitempty"`
	// Incomplete says why the event lacks its payload; "" where it does not.
	Incomplete string `json:"incomplete,omitempty"`
}

func routingOf(e *event.Event) Routing {
	r := Routing{Cluster: e.Cluster, Part: e.Part, CompactionKey: e.CompactionKey, Run: e.Run}
	if e.Err != nil {
		r.Incomplete = e.Err.Error()
	}
	return r
}

// Parse returns the event as it was handed to the sink: with its id, its bytes and its
// destination.
func (e *Entry) Parse() (*event.Event, error) {
	switch {
	case e.Problem != "":
		return nil, fmt.Errorf("%s: %s", e.ID, e.Problem)
	case e.Routing.Incomplete != "":
		return nil, fmt.Errorf("%s: %w", e.ID, ErrIncomplete)
	}
	parsed, err := event.ParseStructured(e.Event)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID, err)
	}
	r := &e.Routing
	parsed.Cluster, parsed.Part, parsed.CompactionKey, parsed.Run =
		r.Cluster, r.Part, r.CompactionKey, r.Run
	return &parsed, nil
}

// Order puts events into the order in which they are to be sent: those of one object by their
// sequence, and objects by when their first event was kept. The clock may have jumped between two
// events of an object, their sequence has not.
func Order(entries []Entry) {
	type object struct{ sink, source, informer, key string }
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Kept.Compare(b.Kept) })
	rank, orders := map[object]int{}, make(map[string]ordered, len(entries))
	for i := range entries {
		e := &entries[i]
		parsed, _ := e.Parse() // what can't be read is refused when it is sent
		of := object{sink: e.Sink, key: e.ID}
		if parsed != nil {
			of = object{e.Sink, parsed.Source, parsed.Informer, parsed.PartitionKey}
		}
		if _, known := rank[of]; !known {
			rank[of] = len(rank)
		}
		o := ordered{rank: rank[of]}
		if parsed != nil {
			o.sequence = parsed.Sequence
		}
		orders[e.Sink+"/"+e.ID] = o
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		x, y := orders[a.Sink+"/"+a.ID], orders[b.Sink+"/"+b.ID]
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.sequence, y.sequence))
	})
}

// ordered is where an event comes: by its object, then by its sequence.
type ordered struct {
	rank     int
	sequence string
}
