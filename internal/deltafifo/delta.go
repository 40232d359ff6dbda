package deltafifo

import "github.com/kubebridge/bridge/internal/resource"

// DeltaType is what happened, as client-go names it. Bookmark, ReplaceBegin, ReplaceEnd,
// Quarantined and Skipped are marks in the stream rather than changes of an object. Skipped is an
// item of a list that can't be understood. Unselected is an object that is not selected: whether it
// was before, only the controller knows.
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

// Delta is one change of an object, or one mark.
type Delta struct {
	Type DeltaType
	// Key of the object; "" for marks, but for a Skipped whose object is known.
	Key resource.Key
	// Object is the state after the change; for Deleted the last state; for Unselected its
	// Identity. It is nil for Sync and for a Deleted with FinalStateUnknown, whose states the
	// controller looks up when it comes to them, and for marks.
	Object *resource.Object
	// Gone is set on an Unselected that does not exist any more. Listed is set on an Unselected or
	// a Deleted that came between a ReplaceBegin and its ReplaceEnd.
	Gone, Listed bool
	// FinalStateUnknown is set on a Deleted that was inferred from a list: nobody saw the last
	// state (client-go's DeletedFinalStateUnknown).
	FinalStateUnknown bool
	// Version of a mark: the bookmark's, or the list's.
	Version resource.Version
	// Progress is set on a Bookmark that is not the API server's: it says how far the stream was
	// read.
	Progress bool
	// Relist of a ReplaceBegin or ReplaceEnd, and of a Deleted with FinalStateUnknown.
	Relist *resource.Relist
	// Unreadable of a Quarantined.
	Unreadable *resource.Unreadable
	// Skipped is what is known of the object of a Skipped.
	Skipped *resource.Identity
	// Listeners is, on a Sync, the set of those who get it.
	Listeners uint64
	// Round is, on a Sync, the number of the resync period or of the snapshot.
	Round int64
	// Snapshot is set on a Sync that was asked for by name, which is never dropped.
	Snapshot bool
	// After is, on a Sync of a resync period, the number of the newest change when it was queued. A
	// later change of the object makes the Sync needless.
	After uint64
}

// Deltas are in stream order.
type Deltas []Delta

// syncSize is what a Sync counts against the bound, though it carries nothing: the controller looks
// its object up, and that is in memory then. Few objects are larger.
const syncSize = 16 << 10

// size of what a delta carries, in bytes.
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
