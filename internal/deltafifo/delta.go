package deltafifo

import "github.com/kubebridge/bridge/internal/resource"

// DeltaType is what happened, as client-go names it. Bookmark, ReplaceBegin, ReplaceEnd,
// Quarantined and Skipped are about the stream rather than a change of an object. Skipped is an
// item of a list that can't be understood. Unselected is an object that is not selected: only the
// controller knows whether it was before.
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
	Skipped
	Unselected

	typesEnd // of the list
)

func (t DeltaType) String() string {
	return [...]string{
		"?", "Added", "Updated", "Deleted", "Replaced", "Sync", "Bookmark", "ReplaceBegin",
		"ReplaceEnd",
		"Quarantined", "Skipped", "Unselected",
	}[t]
}

// Delta is one change of an object, or one event of the stream.
type Delta struct {
	Type DeltaType
	// Key of the object; "" for events of the stream, except for a Skipped with a known object.
	Key resource.Key
	// Object is the state after the change; for Deleted the last state; for Unselected its
	// Identity. It is nil for events of the stream. It is also nil for Sync and for a Deleted with
	// FinalStateUnknown: the controller looks up their state when it processes them.
	Object *resource.Object
	// Gone is set on an Unselected that does not exist any more. Listed is set on an Unselected or
	// a Deleted that came between a ReplaceBegin and its ReplaceEnd.
	Gone, Listed bool
	// FinalStateUnknown is set on a Deleted that was inferred from a list: nobody saw the last
	// state (client-go's DeletedFinalStateUnknown).
	FinalStateUnknown bool
	// Version of a Bookmark, or of a list.
	Version resource.Version
	// Progress is set on a Bookmark that is not the API server's: the reflector reports how far it
	// has read.
	Progress bool
	// Relist of a ReplaceBegin or ReplaceEnd, and of a Deleted with FinalStateUnknown.
	Relist *resource.Relist
	// Unreadable of a Quarantined.
	Unreadable *resource.Unreadable
	// Skipped is the identity of a Skipped, as far as it is known.
	Skipped *resource.Identity
	// Listeners is, on a Sync, the set of listeners that get it.
	Listeners uint64
	// Round is, on a Sync, the number of the resync period or of the snapshot.
	Round int64
	// Snapshot is set on a Sync of a requested snapshot, which is never dropped.
	Snapshot bool
	// After is, on a Sync of a resync period, the number of the newest change when it was queued. A
	// later change of the object makes the Sync needless.
	After uint64
}

// Deltas are in stream order.
type Deltas []Delta

// syncSize is what a Sync counts against the bound. It carries no object, but the controller loads
// one to process it. Few objects are larger.
const syncSize = 16 << 10

// size returns the bytes that a delta carries.
func (d *Delta) size() int {
	switch {
	case d.Type == Sync:
		return syncSize
	case d.Object != nil:
		return d.Object.Size()
	case d.Unreadable != nil:
		return d.Unreadable.Bytes()
	}
	return 0
}
