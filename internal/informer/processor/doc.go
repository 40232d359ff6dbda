// Package processor makes events of the changes of one informer, for one sink each: client-go's
// processorListeners, as cursors in one log.
//
// In come entries of the change log (internal/informer/changelog), at the cursor of the sink. Out
// go events to the sink's publisher, and acks to the log.
//
// A Listener runs one of three loops:
//   - On a standby (follow) it makes no events: it acks what the leader has delivered, until this
//     replica leads.
//   - runEvery sends every change, in order, at most Window at a time.
//   - runLatest, with Latest, reads ahead, lets the publisher have at most one event of an object,
//     and acks changes that a later one makes needless without sending them.
//
// Order: the changes of an object are added in their order, and acked in it. An event about the
// informer (gap, synced) waits until everything before it is acknowledged, and everything behind
// waits for it. Stalled events, whose destination refuses everything, are not waited for: a gap
// passes them, and synced is postponed (passBarrier). Duplicates: none are made, but for a gap that
// has passed a postponed synced when the process died. Blocking: a full publisher blocks the
// listener; its cursor stays, and the log keeps the entries that were not read.
//
// New starts nothing. Start starts one goroutine. That of runEvery ends when there are no more
// entries: the listener parks. Then the goroutine that appends an entry makes the event and adds it
// (Listener.step). A new goroutine of the listener does what the step can't, such as to wait for a
// full publisher, and ends it when the log or the context ends. Detach follows the end, where
// another listener is to continue in the same process.
//
//	running ── nothing to read ──> parked ── append: step returns true ──> parked
//	   ^                             │
//	   └── step returns false, log closed, context ended
package processor
