// Package pipeline connects the stages of one resource of one informer, in one namespace or all: a
// reflector, a DeltaFIFO, and an informer with its listeners, one for each sink.
//
// In comes what the API server sends; out go events to the publishers, in order per object. The
// bridge makes a pipeline, has it Begin, and runs it. A pipeline stops in the direction of the
// data: the reflector stops reading, the FIFO is closed and emptied, the listeners wait until what
// they passed on is settled.
//
//	created ──Begin──> running ──Stop──> draining(gone | moving | changed)
//	                      │                  │
//	                      └─── run returns ──┴──> detached ──Close──> ended
//
// Draining has a reason: the resource has gone, it moves to another version of the API, or the
// configuration has changed. A bridge that stops ends what a pipeline reads, and needs no reason.
// Run returns when everything read is settled, or after Abort. Then no listener runs any more, and
// Spool takes back what the sinks have not acknowledged: it waits on disk.
package pipeline
