// Package changelog is the log of one informer, and the one keeper of "how far is this change":
// order, cursors, the complete version of the API server, and the part that lies on disk.
//
// Takes in: of each delta its entries, in the order of decision, and what it says of versions
// (Place), from the controller; entries that listeners may read (Append); from each listener what
// it is done with (Cursor.Ack). Hands on: entries to the listeners (Cursor.Read, or Headers and
// Load), and checkpoints to the committer: the watermark, states of objects, entries for the disk,
// cursors.
//
//	placed -> appended -> settled -> committed
//	                  \-> spooled, so settled -> committed -> acked by all -> trimmed
//
// The rules:
//
//   - L1 An entry is settled when every listener that it is for has acked it, or when it is
//     spooled: part of the commit that has the cursors which still need it.
//   - L2 Marks are passed behind the settled prefix of the entries. An Event's version is complete
//     when a mark with another version follows: several events can have one version (an expired
//     lease deletes up to 1,000 Events in one transaction). A Bookmark's version is complete at
//     once, and a ListEnd's too, also when it is lower. The watermark is the last complete version.
//     Versions known not to be newer than it are passed over, but for a ListEnd's.
//   - L3 Marks behind one entry merge, so there are at most as many as entries, and one.
//   - L4 The state to be committed of an object is that of the last entry in the settled prefix of
//     the object's entries.
//   - L5 What is read is pending, from under the same lock, until it is acked.
//   - L6 What all have acked is trimmed on disk, with a commit that has the cursors.
//   - L7 A hold on a position of a sink is released after all have acked its entry, or it is
//     spooled.
//   - L8 Memory is at most the bound and one batch. Full memory waits; where something lies on
//     disk already it spools, and then keeps its newest half.
//   - L9 A drop takes the front of the log on disk. First it can't be read there; then each cursor
//     gets what it had not acked (lost); the next commit writes the cursors and trims. A loss is
//     read before the cursor's next entry, and cleared by its ack.
//
// L1 to L4 go by places, all else by positions in the log (docs/decisions/0005-ids-and-orders.md).
//
// Blocking: Room, Spool, EndSpooling, Commit and reads from disk wait, the rest does not. A Log has
// no goroutine: Spooler.Run spools what is old, in all logs of a bridge. One lock guards a Log and
// its cursors. It is not held while anything is encoded, read from disk, or committed.
package changelog
