// Package informer runs one unit: one resource of an informer section, in one namespace or all. It
// is client-go's shared informer and its processor over one log.
//
// In comes what the API server sends; out go events to the publishers, in order per object, and
// the newest state of each object to the Indexer:
//
//	reflector -> deltafifo -> controller -> changelog -> processor, a listener a sink -> publisher
//
// An Informer connects all stages. Stages are those behind the FIFO. The changes form one log,
// bounded in bytes; each listener is a cursor in it. A change leaves the log when all its listeners
// have settled it. A resync and a snapshot put a Sync of each object into the FIFO, so they are in
// order with its changes.
//
// Blocking: a full log blocks the controller, which fills the FIFO, which blocks the reflector.
// With DropOldest it loses its oldest changes instead, and a gap event reports that. Duplicates:
// none, except after a crash or a takeover, with the ids of the first time.
//
// The bridge makes an informer, calls Begin, and runs the function that Begin returns. An informer
// stops in the direction of the data: the reflector stops reading, the FIFO is closed and emptied,
// the listeners wait until their events are settled.
//
//	created ──Begin──> running ──Stop──> draining(gone | moving | changed)
//	                      │                  │
//	                      └─── run returns ──┴──> detached ──Close──> ended
//
// Draining has a reason: the resource has gone, it moves to another version of the API, or the
// configuration has changed. A bridge that stops ends the reading, and needs no reason. run returns
// when everything read is settled, or after Abort. Then no listener runs any more, and Spool takes
// back the events that the sinks have not acknowledged: they wait on disk for the next informer of
// the unit.
//
// Goroutines: one for the reflector, one for the controller, one for each resync period and each
// listener with latest. A listener of every change has one only while it has something to do.
package informer
