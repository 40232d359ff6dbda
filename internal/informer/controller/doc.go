// Package controller decides what changed: client-go's controller.
//
// Takes in: Deltas popped from a DeltaFIFO. Hands on: to the Indexer the newest state of each
// object, to the change log (internal/informer/changelog) the changes, and what deltas say of versions.
//
// It compares each delta with what is known of the object (Decide, which is pure) and makes changes
// of it: Added, Updated, Deleted, Synced. A new uid under a known name is the delete of the old
// object and then the add of the new one. What the settled state of an object covers already (a
// replay after a restart) is no change. What a relist finds is marked inferred, and a gap event
// goes before it. Then the selectors say which listeners a change is for.
//
//	Indexer.Get -> Decide -> find objects -> Indexer.Update -> selectors -> Log.Place
//	-> announce (fsync) -> Log.Room -> Log.Append -> Log.Offer
//
// Ordering: the changes of an object are appended in the order of the stream. While the fsync of an
// announcement takes long, changes of other objects pass it. Duplicates: none are made. Blocking: a
// full log blocks the controller, which fills the FIFO, which blocks the reflector.
//
// Run is one goroutine, with a second one while announcements are written. TryProcess runs on the
// goroutine of the reflector while Run waits. Run ends when the FIFO is closed and empty, and then
// closes the log.
package controller
