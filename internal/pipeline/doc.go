// Package pipeline connects the stages of one resource of one informer, in one namespace or all: a
// reflector, a DeltaFIFO, an informer with its listeners, and before each listener's publisher a
// relay where there are other replicas.
//
// In comes what the API server sends; out go events to the publishers, in order per object. The
// bridge makes a pipeline, has it Begin, and runs it. A pipeline stops in the direction of the
// data: the reflector stops reading, the FIFO is closed and emptied, the listeners wait until what
// they passed on is settled.
//
//	created → running → draining → ended
//
// Draining has a reason: the bridge stops, the resource has gone, it moves to another version of
// the API, or the configuration has changed. It ends when everything read is settled, or with
// Abort: then what the sinks have not acknowledged waits on disk (Spool).
package pipeline
