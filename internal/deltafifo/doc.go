// Package deltafifo holds what the reflector read until the controller takes it: per-object ordered Deltas, first in,
// first out by the first delta of each object, as client-go's DeltaFIFO.
//
// Takes in: watch events, bookmarks and the items of a list, from one reflector; of objects that are not selected, only which they are. Hands on: batches of Deltas, to one
// controller.
//
// What differs from client-go, and why:
//   - It is bounded by bytes. Add and its sisters block while there is no room, so memory does not follow a flood.
//   - A list arrives item by item between BeginReplace and EndReplace, never as a whole. Both are barriers: deltas do not
//     move across them, so that a gap is told before what the relist found. When the controller has applied all items and
//     pops the end, the FIFO asks the known objects which were not listed and hands out their deletes
//     (DeletedFinalStateUnknown) before the end itself.
//   - Every delta has a sequence number of arrival. The stream's order, in which the watermark moves, is thereby kept
//     although objects overtake each other here.
//   - Nothing collapses here but two deletes in a row. Which changes a sink is not to have is decided behind the change log, for each sink.
//
// Ordering: deltas of one object are handed out in the order they came. Duplicates: none are made, none removed but two
// Deleted of one object in a row. Blocking: the adding methods block while full, Pop while empty; each returns when its
// context ends. The FIFO starts no goroutines; Close ends it, after which Pop hands out what is left and then ErrClosed.
package deltafifo
