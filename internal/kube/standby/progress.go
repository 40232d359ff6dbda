package standby

import (
	"maps"
	"slices"
	"strconv"

	"github.com/kubebridge/bridge/internal/resource"
)

// Progress is what the leader writes for the other replicas.
type Progress struct {
	// Units by name.
	Units map[string]Unit
	// Feeds are the sinks of an informer's units, by the informer's name: a unit's progress is
	// about these. nil for not known.
	Feeds map[string][]string
	// Version of the leader's current configuration; "" for none.
	Version string
	// RedactionKey is the id of the key with which the leader redacts; "" where it redacts nothing.
	RedactionKey string
	// Sinks are positions in their brokers' logs, by name: everything that was sent and that Units
	// do not cover yet lies behind them.
	Sinks map[string][]byte
	// Outlines are shorter forms of Sinks, written in their place where these are too large: what
	// is possible without the rest of them.
	Outlines map[string][]byte
}

// MaxCount is more epochs of a server's history, or changes of a selection, than there are. A
// larger number was not written by a bridge.
const MaxCount = 1_000_000

// Unit is the progress of one unit.
type Unit struct {
	// Scope is what the unit selects. Progress of another selection is not comparable.
	Scope string `json:"s,omitempty"`
	// Delivered is the version of the API server up to which every change has reached all sinks of
	// the unit; "" for nothing yet.
	Delivered resource.Version `json:"v,omitempty"`
	// Further has the sinks that are further than Delivered, by key: while one of the unit's sinks
	// is unavailable, Delivered stands still.
	Further map[string]resource.Version `json:"f,omitempty"`
	// Front is of a version after Delivered, of which more may come; nil for none.
	Front *Front `json:"t,omitempty"`
	// Epoch of the server's history that Delivered, Further and Front are of.
	Epoch int `json:"e,omitempty"`
	// Selection is the version of the Namespaces up to which all events of changes of the selected
	// ones have reached all sinks; "" where none are selected by their labels.
	Selection resource.Version `json:"n,omitempty"`
	// Selectors is how often the unit has selected something else before, for the ids.
	Selectors int `json:"l,omitempty"`
}

// Front has the objects whose change in a version has reached all sinks, by their Key.Digest: names
// are not for everybody who may read a Lease.
type Front struct {
	Version resource.Version `json:"v"`
	Objects []uint64         `json:"o"`
}

// Of returns the progress of one sink.
func (p *Unit) Of(sinkKey string) Unit {
	of := *p
	of.Delivered, of.Further = p.furthest(sinkKey), nil
	return of
}

// furthest is the newest version of Delivered and those of some sinks.
func (p *Unit) furthest(sinkKeys ...string) resource.Version {
	version := p.Delivered
	for _, key := range sinkKeys {
		if further := p.Further[key]; version == "" || further.Newer(version) {
			version = further
		}
	}
	return version
}

// maxAhead is by how many versions the leader may be ahead of what a follower has seen: more than
// an API server writes while a follower's watch is interrupted for some minutes.
const maxAhead = 10_000_000

// IsFarAheadOf reports whether any sink is far beyond the last version that a follower has seen
// itself. Such a progress is not believed yet: the follower would settle events that may never have
// been sent. Where versions have no order, or nothing was seen, there is nothing to compare.
func (p *Unit) IsFarAheadOf(seen resource.Version) bool {
	furthest := p.furthest(slices.Collect(maps.Keys(p.Further))...)
	if !furthest.Newer(seen) {
		return false
	}
	before, err := strconv.ParseUint(string(seen), 10, 64)
	if err != nil {
		return false
	}
	now, err := strconv.ParseUint(string(furthest), 10, 64)
	return err != nil || now-before > maxAhead
}
