package changelog

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Listeners is a set of the listeners of an informer. The n-th has the bit 1<<n.
type Listeners uint64

// Kind of an entry.
type Kind uint8

const (
	// OfObject is a change of an object.
	OfObject Kind = iota
	// OfGap says that versions are missing.
	OfGap
	// OfListEnd says that a list was worked through.
	OfListEnd
	// OfDropped says that the log on disk was full, and what one listener has lost by that.
	OfDropped
	// OfQuarantined says that something can't be understood.
	OfQuarantined
	// OfProgress says that everything up to a version is before it.
	OfProgress
)

// Position is the number of an entry in the order in which entries are appended, from 1 on. An
// entry on disk keeps it over restarts.
type Position uint64

// Entry is a change, or an event about the informer. What it says does not change once it was
// placed.
type Entry struct {
	event.Change
	Kind    Kind             `json:"kind,omitempty"`
	Relist  *resource.Relist `json:"relist,omitempty"` // of a gap
	Listing event.Listing    `json:"listing,omitzero"` // of a list that was worked through
	// Since is the version after which came what the list is about; "" for all.
	Since      resource.Version     `json:"since,omitempty"`
	Loss       event.Loss           `json:"loss,omitzero"`        // of what was dropped
	Unreadable *resource.Unreadable `json:"unreadable,omitempty"` // of what was quarantined
	// Unasked is set of a gap that is only reported when the sink's broker holds events of an
	// earlier run. The sink was unavailable before the list, so it is asked when the gap comes.
	Unasked bool `json:"unasked,omitempty"`
	// DeltaVersion is the version of the delta, where that is not the change's own. OfList is set
	// when it has none: only the list's end says as of which version it is.
	DeltaVersion resource.Version `json:"deltaVersion,omitempty"`
	OfList       bool             `json:"ofList,omitempty"`

	// For are the listeners that it is for.
	For Listeners `json:"-"`
	// Seq orders the changes of the informer.
	Seq uint64 `json:"-"`
	// Written is what is to be remembered of the managedFields, and Forget is set when nothing is
	// to be remembered of an object that is gone.
	Written resource.Written `json:"-"`
	Forget  bool             `json:"-"`
	// Position in the log, from Append on.
	Position Position `json:"-"`

	place Place // in the order of decision; 0 of one that was read from disk
	inLog
}

// inLog is how far an entry in memory is settled. It is guarded by Log.mu.
type inLog struct {
	size    int  // in bytes; 0 when all have acked it, or it has left memory
	spooled bool // it lies on disk too, or will with the next commit, and is settled
	waiting int  // how many listeners have not acked it
	// holds are those of listeners that have acked it while others have not.
	holds []Hold
}

// Hold keeps the position of a sink that is saved from passing a place: *publisher.Hold.
type Hold interface{ Release() }

// AboutAll reports whether the entry is about all objects, or nobody knows about which: nothing may
// pass it. What is quarantined of a known object is in order with that object's events only, so it
// waits for no other one, which may have no topic.
func (k Kind) AboutAll(key resource.Key) bool {
	return k != OfObject && (k != OfQuarantined || key == "")
}

// LeavesState reports whether the entry, once it is settled, is the settled state of its object.
func (e *Entry) LeavesState() bool { return e.Kind == OfObject && e.Op != event.Synced }

// State is what the entry leaves of its object.
func (e *Entry) State() store.Settled {
	s := store.Settled{Object: e.Object, Seq: e.Seq, Record: store.Record{
		UID: e.UID, Version: e.Version, Written: e.Written, EventTime: e.Time.UnixNano(),
	}}
	if e.Op == event.Deleted {
		s.Deleted, s.Object, s.Version = true, nil, cmp.Or(e.GoneAsOf, e.Version)
		if e.Forget {
			s.Version = "" // a tombstone would cover it
		}
	}
	return s
}

// stateKey is that of the object of which the entry leaves a state, "" for none.
func (e *Entry) stateKey() resource.Key {
	if e.LeavesState() {
		return e.Key
	}
	return ""
}

// overhead is what an entry costs besides its objects: the struct and its places in queues, rounded
// up.
const overhead = 512

// Size is what the entry takes in memory.
func (e *Entry) Size() int {
	size := overhead
	if e.Unreadable != nil {
		size += e.Unreadable.Bytes()
	}
	for _, obj := range []*resource.Object{e.Object, e.Old} {
		if obj != nil {
			size += len(obj.Raw)
		}
	}
	return size
}

// Header is what a listener that reads ahead needs to know of an entry.
type Header struct {
	Position Position
	Kind     Kind
	Key      resource.Key
	Op       event.Op
	UID      string
	Observed time.Time
	// DeltaVersion is the version of the delta, also where that is the change's own; "" where
	// only a list's end says it. Epoch is that of the version, and OfList as in Entry.
	DeltaVersion resource.Version
	Epoch        int
	OfList       bool
	// Tried is set when the sink may have the event that was made of it.
	Tried bool
}

// Header describes the entry.
func (e *Entry) Header() Header {
	return Header{
		Position: e.Position, Kind: e.Kind, Key: e.Key, Op: e.Op, UID: e.UID, Observed: e.Observed,
		DeltaVersion: e.deltaVersion(), Epoch: e.Epoch, OfList: e.OfList,
	}
}

func (e *Entry) deltaVersion() resource.Version {
	switch {
	case e.Kind == OfQuarantined:
		return e.Unreadable.Version
	case e.Kind == OfDropped:
		return e.Loss.To
	}
	return cmp.Or(e.DeltaVersion, e.Version)
}

func (s Listeners) count() int { return bits.OnesCount64(uint64(s)) }

// Set gives the listeners of sinks by name, everyone for no names; sinks that are not there any
// more are left out.
func (l *Log) Set(names []string) Listeners {
	if len(names) == 0 {
		return l.everyone
	}
	var set Listeners
	for _, c := range l.cursors {
		if slices.Contains(names, c.name) {
			set |= c.bit
		}
	}
	return set
}

// Names are the listeners of a set; none for everyone.
func (l *Log) names(set Listeners) []string {
	if set&l.everyone == l.everyone {
		return nil
	}
	var names []string
	for _, c := range l.cursors {
		if set&c.bit != 0 {
			names = append(names, c.name)
		}
	}
	return names
}
