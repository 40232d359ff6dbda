// Package reflector keeps one (resource, namespace, selector) in sync with the API server.
//
// It reads the answers of list and watch requests, splits them into objects while they arrive, and
// hands these to a Store, an interface declared here. state.go decides the next step:
//
//	         snapshot: first list
//	start ──────────────────────────> list <──── a namespace entered or left ────┐
//	  │                              ↑    │ complete                             │
//	  │            a gap or rewind,  │    └──────────────────────────────────> watch ──┐
//	  │            or a list is due  │                                         ↑  │ ↑  │ ended in
//	  └─────────────────────────> probe ───────── nothing is missing ──────────┘  │ └──┘ time
//	                                 ↑                                            │
//	                                 └── any step failed, or was paused; ended ───┘
//	                                     early; expired (410); history diverged
//
// # What it promises
//
//   - Order: the Store is called from one goroutine, in the order of the stream.
//   - Completeness: every watch event is handed on, or a Replace follows that makes up for the
//     others. An event that can't be understood is quarantined and reconciled by a list. An item of
//     a list is quarantined and skipped: its object is not gone. Objects that are too deep, too
//     large, or make the parser panic are quarantined and skipped everywhere. The items
//     of a list count from EndReplace on; the next BeginReplace discards a list that broke. 401,
//     403, 404 and 5xx are never taken for an empty collection.
//   - Duplicates: a watch resumes from the last version that the Store took. After a cut the Store
//     may see an event twice only where several events have one version.
//   - Resume: with Config.From the watch starts there. Nothing is listed, except by a probe
//     (limit=1), which shows whether the server's history went back. A probe also follows each
//     watch that failed or ended early.
//   - Blocking: a Store that blocks stops the reading. After about a minute the API server closes
//     the watch, and may forget its version.
//   - Memory: one frame or one item of a list at a time, however large the collection is.
//
// New checks and starts nothing. Run does all the work on the caller's goroutine. It returns when
// its context ends or the Store fails; a Reflector runs once. Status may be called from any
// goroutine.
package reflector
