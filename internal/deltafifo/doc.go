// Package deltafifo holds what the reflector read until the controller takes it: a queue of Deltas
// in the order of the stream, as client-go's RealFIFO.
//
// Takes in: watch events, bookmarks and the items of a list from one reflector, Syncs from the
// informer. Of an object that is not selected only its Identity. Hands out: Deltas, to the one
// Processor that calls Pop.
//
// Order: deltas are handed out in the order in which they were added, each once. None are merged
// and none are left out. Blocking: the adding methods block while the FIFO is full, Pop blocks
// while it is empty. Each returns when its context ends. Close lets Pop hand out what is left and
// then return ErrClosed. An error of the Processor ends the FIFO. It starts no goroutines.
//
// What differs from client-go, and why:
//   - It is bounded in bytes, so memory does not follow a flood.
//   - A list arrives item by item between BeginReplace and EndReplace, never as a whole. A
//     ReplaceBegin is handed out alone and a ReplaceEnd is the last of its Deltas: what the
//     controller does at either is done between what is before and what follows.
//   - The deletes that a list implies come before its ReplaceEnd. KnownObjects gives them when
//     everything before the end was processed. client-go puts them in front of the list.
//   - A Sync of an object that has changed since is handed out. The controller drops it, see
//     Delta.After.
package deltafifo
