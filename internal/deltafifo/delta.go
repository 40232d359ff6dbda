package deltafifo

import "github.com/kubebridge/bridge/internal/resource"

// DeltaType is what happened, as client-go names it; Bookmark, ReplaceBegin, ReplaceEnd and Quarantined are marks in the stream
// rather than changes of an object. Spared is one too: an item of a list that can't be understood. Unselected is news of an object that is
// not selected: whether it was before, only the controller knows.
type DeltaType uint8

// The types of deltas.
const (
	Added DeltaType = iota + 1
	Updated
	Deleted
	Replaced
	Sync
	Bookmark
	ReplaceBegin
	ReplaceEnd
	Quarantined
	Spared
	Unselected

	typesEnd // of the list
)

func (t DeltaType) String() string {
	return [...]string{"?", "Added", "Updated", "Deleted", "Replaced", "Sync", "Bookmark", "ReplaceBegin", "ReplaceEnd", "Quarantined", "Spared", "Unselected"}[t]
}

// Delta is one change of an object, or one mark.
type Delta struct {
	Type DeltaType
	// Seq is the place in the stream, counted from 1. Inferred deletes bear the Seq of the ReplaceEnd that told them.
	Seq uint64
	// Object is the state after the change; for Deleted the last state; for Unselected its Identity; nil for Sync and for a Deleted
	// with FinalStateUnknown, whose states the controller looks up when it comes to them, and for marks.
	Object *resource.Object
	// Gone is set on an Unselected that does not exist any more, and Listed on one that is an item of a list; Listed too on a Deleted that came
	// before the end of one.
	Gone, Listed bool
	// FinalStateUnknown is set on a Deleted that was inferred from a list: nobody saw the last state (client-go's DeletedFinalStateUnknown).
	FinalStateUnknown bool
	// Version of a mark: the bookmark's, or the list's.
	Version resource.Version
	// Passed is set on a Bookmark that is not the API server's: it says how far the stream was read.
	Passed bool
	// Relist of a ReplaceBegin or ReplaceEnd.
	Relist *resource.Relist
	// Unreadable of a Quarantined.
	Unreadable *resource.Unreadable
	// Spared is what a Spared says of itself.
	Spared *resource.Identity
	// Resync says, on a Sync, which listeners asked: a set of the informer's own making.
	Resync uint64
	// Round is set on a Sync that was asked for by name (FIFO.Snapshot), and tells it from others; 0 on that of a resync period.
	Round int64
}

// Deltas are the changes of one object that wait together, oldest first; marks come alone, with no Key, but for a Spared that bears one.
type Deltas struct {
	Key   resource.Key
	Items []Delta
	// Collapsed are the sequence numbers of deletes that were dropped in favour of a later one.
	Collapsed []uint64
}
