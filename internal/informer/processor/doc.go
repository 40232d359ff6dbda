// Package processor makes events of the changes of one informer, for one sink each: client-go's
// processorListeners, as cursors in one log.
//
// Takes in: entries of the change log (internal/informer/changelog), at the cursor of its sink. Hands on:
// events, to the sink's publisher; to the log, what the sink is done with.
//
// A Listener is one of three loops. On a standby it makes no events: it acks what the leader has
// delivered, until this replica leads. Then, or where there are no replicas, it is one of two. That
// of a history sends every entry, in order, at most Window at a time. With Latest it reads ahead,
// has at most one event of an object with the publisher, and acks what a later change makes
// needless without sending it.
//
// Ordering: the changes of an object are added in their order, and acked in it. An event about the
// informer (gap, synced) waits until everything before it is acknowledged, and everything behind
// waits for it. Duplicates: none are made. Blocking: a full publisher blocks the listener; its
// cursor stays, and the log keeps what it has not read.
//
// Start starts one goroutine. Where every entry is sent, that ends when there are no more: the
// listener is parked. Then the goroutine that appends an entry makes the event and adds it
// (Listener.step). What the step can't do, such as to wait for a full publisher, a new goroutine of
// the listener does. So do the end of the log and that of the context. New starts nothing. Detach
// follows the end, where another listener is to continue in the same process.
//
//	running ── nothing to read ──> parked ── append: step gives true ──> parked
//	   ^                             │
//	   └── step gives false, log closed, context ended
package processor
