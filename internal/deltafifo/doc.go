// Package deltafifo holds the deltas between the reflector and the controller, in the order of the
// stream, as client-go's RealFIFO.
//
// In come watch events, bookmarks and the items of a list from one reflector, and Syncs from the
// informer; of an object that is not selected only its Identity. Out go Deltas, to the one
// Processor that calls Pop.
//
// Order: deltas are handed out in the order of adding, each once. None are merged and none are left
// out. Blocking: the adding methods block while the FIFO is full, Pop blocks while it is empty;
// each returns when its context ends. Close lets Pop hand out the rest and then return ErrClosed.
// An error of the Processor ends the FIFO. It starts no goroutines.
//
// Differences from client-go:
//   - The FIFO is bounded in bytes, so memory does not follow a flood.
//   - A list arrives item by item between BeginReplace and EndReplace, never as a whole. A
//     ReplaceBegin is handed out alone and a ReplaceEnd is the last of its Deltas, so the
//     controller can act between the deltas before and after each.
//   - The deletes that a list implies come before its ReplaceEnd. KnownObjects yields them when
//     everything before the end was processed. client-go puts them in front of the list.
//   - A Sync of an object that has changed since is handed out. The controller drops it, see
//     Delta.After.
package deltafifo
