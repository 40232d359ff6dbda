// Package controller decides what changed: client-go's controller.
//
// In come Deltas, popped from a DeltaFIFO. Out go the newest state of each object to the Indexer,
// and changes with the marks of their versions to the change log (internal/informer/changelog).
//
// It compares each delta with the known state of the object (Decide, which is pure) and makes
// changes of it: Added, Updated, Deleted, Synced. A new uid under a known name is the delete of the
// old object and then the add of the new one. A delta that the settled state covers already (a
// replay after a restart) is no change. The changes of a relist are inferred, and a gap event goes
// before them. Then the selectors choose the listeners of each change.
//
//	Indexer.Get -> Decide -> find objects -> Indexer.Update -> selectors -> Log.Rank
//	-> announce (fsync) -> Log.Room -> Log.Append -> Log.Offer
//
// Order: the changes of an object are appended in the order of the stream. While the fsync of an
// announcement takes long, changes of other objects pass it. Duplicates: none are made. Blocking: a
// full log blocks the controller, which fills the FIFO, which blocks the reflector.
//
// A start is one switch, Recover: how to read, and which gap to report before that. The table
// "Starting" in docs/design.md is the input of its test. It is asked twice: the informer asks how
// to read before it starts; the controller asks for the gap when the first list begins, since only
// then other replicas and brokers have answered.
//
// Run is one goroutine, with a second one while announcements are written. TryProcess runs on the
// goroutine of the reflector while Run waits. Run ends when the FIFO is closed and empty, and then
// closes the log.
package controller
