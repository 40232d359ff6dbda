package resource

// Relist says why everything that is known of an informer's objects is about to be replaced by a list.
type Relist struct {
	// Initial is set when there was no position to resume from: this is the first snapshot and no gap.
	Initial bool
	// Reason of the gap, a short constant: "expired" (410), "rewound" (the server went back in time),
	// "unreadable" (a frame that could not be understood), "dropped" (a full log dropped its oldest).
	Reason string
	// From is the last version known before the gap; To is a version of the server, no older than which the list is.
	From, To Version
	// Rewound is set when the server's history went back: versions from before can't be compared with those after.
	Rewound bool
}

// Reasons of a gap.
const (
	ReasonExpired    = "expired"
	ReasonRewound    = "rewound"
	ReasonUnreadable = "unreadable"
	ReasonDropped    = "dropped"
)

// Known is an object that a store knows: its key, and its last state, or nil where only its version is known.
type Known struct {
	Key    Key
	Object *Object
}
