package resource

import (
	"fmt"
	"slices"
)

// Relist says why everything that is known of an informer's objects is about to be replaced by a
// list.
type Relist struct {
	Kind RelistKind
	// Reason of the gap, a short constant: "expired" (410), "rewound" (the server went back in
	// time), "unreadable" (a frame that could not be understood), "dropped" (a full log dropped its
	// oldest).
	Reason string
	// From is the last version known before the gap; To is a version of the server, no older than
	// which the list is.
	From, To Version

	// Incomplete is set, at the end of the list, when it has an item that nobody can identify. What
	// the list does not hold may be that object, so nothing may be taken for gone.
	Incomplete bool

	// Namespaces are those that are selected from here on, each with the version of the Namespace
	// in which it was found to be. nil where no namespaces are selected: all are wanted.
	Namespaces map[string]Version
	// Namespace is the only one that is replaced, where the list is Partial.
	Namespace string
	// Entered is the version of the Namespace in which it was found to be selected.
	Entered Version
}

// RelistKind is which list follows.
type RelistKind uint8

const (
	// RelistGap lists everything: versions are missing.
	RelistGap RelistKind = iota
	// RelistInitial lists everything without a position to resume from: the first snapshot, and no
	// gap.
	RelistInitial
	// RelistRewound lists everything, since the server's history went back: versions from before
	// can't be compared with those after.
	RelistRewound
	// RelistInitialRewound is a first snapshot while which the server's history went back.
	RelistInitialRewound
	// RelistSelection lists nothing: it names Namespaces, and what is known stays as it is.
	RelistSelection
	// RelistEnters lists one Namespace, which comes into the selection.
	RelistEnters
	// RelistLeaves lists nothing of one Namespace, which is not selected any more.
	RelistLeaves
	// RelistDeleted is RelistLeaves of a namespace that does not even exist.
	RelistDeleted
)

var relistKinds = [...]string{
	"gap", "initial", "rewound", "initial-rewound", "selection", "enters", "leaves", "deleted",
}

func (k RelistKind) String() string {
	if int(k) < len(relistKinds) {
		return relistKinds[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MarshalText is for JSON.
func (k RelistKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is for JSON.
func (k *RelistKind) UnmarshalText(text []byte) error {
	n := slices.Index(relistKinds[:], string(text))
	if n < 0 {
		return fmt.Errorf("%q is no kind of a list", text)
	}
	*k = RelistKind(n)
	return nil
}

// Initial reports whether this is the first snapshot.
func (r *Relist) Initial() bool {
	return r.Kind == RelistInitial || r.Kind == RelistInitialRewound
}

// Rewound reports whether versions from before can't be compared with those after.
func (r *Relist) Rewound() bool {
	return r.Kind == RelistRewound || r.Kind == RelistInitialRewound
}

// Partial reports whether only one namespace is replaced.
func (r *Relist) Partial() bool {
	return r != nil && (r.Kind == RelistEnters || r.Leaves())
}

// Leaves reports whether one namespace is not selected any more.
func (r *Relist) Leaves() bool { return r.Kind == RelistLeaves || r.Kind == RelistDeleted }

// Rewind makes it a list after the server's history went back.
func (r *Relist) Rewind() {
	if r.Reason = ReasonRewound; r.Initial() {
		r.Kind = RelistInitialRewound
	} else {
		r.Kind = RelistRewound
	}
}

// Reasons of a gap.
const (
	ReasonExpired    = "expired"
	ReasonRewound    = "rewound"
	ReasonUnreadable = "unreadable"
	ReasonDropped    = "dropped"
	ReasonForgotten  = "forgotten"
)
