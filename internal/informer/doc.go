// Package informer connects the controller, the change log and the listeners of one informer: it is
// client-go's shared informer and its processor over one log (internal/informer/changelog).
//
// Takes in: a FIFO of Deltas. Hands on: to the Indexer the newest state, to each listener's
// publisher the events.
//
//	deltafifo -> controller -> changelog -> processor, one listener for each sink -> publisher
//
// The changes form one log, bounded in bytes; each listener is a cursor in it. A change leaves the
// log when all its listeners have settled it. Blocking: a full log blocks the controller, which
// fills the FIFO, which blocks the reflector; or, with DropOldest, loses its oldest, which a gap
// event reports.
//
// A resync and a Snapshot put a Sync of each object into the FIFO, so they are in order with its
// changes.
//
// Run is the controller's goroutine. It starts one for each resync period. A listener that is sent
// every change has one while it has something to do, the others always. Run returns when all have
// ended. End follows, where another informer is to continue with the state in the same process.
package informer
