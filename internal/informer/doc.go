// Package informer decides what changed and hands it to whoever listens: client-go's controller,
// shared processor and processorListeners over one change log (internal/changelog).
//
// Takes in: Deltas popped from a DeltaFIFO. Hands on: to the Indexer the newest state, to the log
// the changes, to each listener's publisher the events.
//
// The controller compares each delta with what is known of the object and makes changes of it:
// Added, Updated, Deleted, Synced. A new uid under a known name is the delete of the old object and
// then the add of the new one. What the settled state of an object covers already (a replay after a
// restart) is no change. What a relist finds is marked inferred, and a gap event goes before it.
//
// The changes form one log, bounded in bytes; each listener is a cursor in it. A listener makes
// events of the changes and adds them to its sink's publisher, at most Window at a time. A change
// leaves the log when all its listeners have settled it. One with Latest reads ahead, has at most
// one event of an object with the publisher, and settles what a later change makes needless without
// sending it.
//
// Ordering: a listener passes the changes of an object on in their order, and settles them in it.
// An event about the informer (gap, synced) waits until all before it are settled, and all behind
// wait for it. Duplicates: none are made. Blocking: a full log blocks the controller, which fills
// the FIFO, which blocks the reflector; or, with DropOldest, loses its oldest, and tells so.
//
// Run starts one goroutine for the controller, one for each listener, and one for each resync
// period, and returns when they have ended.
package informer
