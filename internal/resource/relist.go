package resource

// Relist says why everything that is known of an informer's objects is about to be replaced by a
// list.
type Relist struct {
	// Initial is set when there was no position to resume from: this is the first snapshot and no
	// gap.
	Initial bool
	// Reason of the gap, a short constant: "expired" (410), "rewound" (the server went back in
	// time), "unreadable" (a frame that could not be understood), "dropped" (a full log dropped its
	// oldest).
	Reason string
	// From is the last version known before the gap; To is a version of the server, no older than
	// which the list is.
	From, To Version
	// Rewound is set when the server's history went back: versions from before can't be compared
	// with those after.
	Rewound bool

	// Incomplete is set, at the end of the list, when it has an item that nobody can identify. What
	// the list does not hold may be that object, so nothing may be taken for gone.
	Incomplete bool

	// Namespaces are those that are selected from here on, each with the version of the Namespace
	// in which it was found to be. nil where no namespaces are selected: all are wanted.
	Namespaces map[string]Version
	// Only is set when no list follows: Namespaces are told, and what is known stays as it is.
	Only bool
	// Namespace is the only one that is replaced, since it comes into the selection or leaves it;
	// "" for everything.
	Namespace string
	// Entered is the version of the Namespace in which it was found to be selected.
	Entered Version
	// Left is set when Namespace is not selected any more: nothing of it is listed. Gone, when it
	// does not even exist.
	Left, Gone bool
}

// Partial reports whether only one namespace is replaced.
func (r *Relist) Partial() bool { return r != nil && r.Namespace != "" }

// Reasons of a gap.
const (
	ReasonExpired    = "expired"
	ReasonRewound    = "rewound"
	ReasonUnreadable = "unreadable"
	ReasonDropped    = "dropped"
	ReasonForgotten  = "forgotten"
)
