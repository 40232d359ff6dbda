// Package changelog is the log of one informer. It alone knows how far each change is: its rank,
// the cursors, the version that the API server has completed, and the part of the log on disk.
//
// In come, from the controller, the entries of each delta in the order of decision and its Mark of
// versions (Rank), then the entries that listeners may read (Append); from each listener its acks
// (Cursor.Ack). Out go entries to the listeners (Cursor.Read, or Headers and Load), and checkpoints
// to the committer: watermark, states of objects, entries for the disk, cursors.
//
//	ranked -> appended -> settled -> committed
//	                  \-> spooled, so settled -> committed -> acked by all -> trimmed
//
// The rules:
//
//   - L1 An entry is settled when all its listeners have acked it, or when it is spooled: then one
//     commit has the entry, and the cursors that still need it.
//   - L2 Marks are passed behind the settled prefix of the entries. An Event's version is complete
//     when a mark with another version follows: an expired lease deletes up to 1,000 Events in one
//     version. A Bookmark's version is complete at once, and a ListEnd's too, even when it is
//     lower. The watermark is the last complete version. Versions not newer than it are skipped,
//     except a ListEnd's.
//   - L3 Marks behind one entry merge, so there are at most as many as entries, and one.
//   - L4 The state to be committed of an object is that of the last entry in the settled prefix of
//     the object's entries.
//   - L5 An entry that was read is pending, under the same lock, until it is acked.
//   - L6 Entries that all have acked are trimmed on disk, with a commit that has the cursors.
//   - L7 A hold on a sink's position is released after all have acked its entry, or it is spooled.
//   - L8 Memory is at most the bound and one batch. Full memory waits; where entries lie on disk
//     already it spools, and then keeps its newest half.
//   - L9 A drop takes the front of the log on disk. First nobody can read it; then each cursor gets
//     what it had not acked (droppedEntries); the next commit writes the cursors and trims. A loss
//     is read before the cursor's next entry, and cleared by its ack.
//
// L1 to L4 go by ranks, the others by positions in the log (docs/decisions/0005-ids-and-orders.md).
//
// Blocking: Room, Spool, EndSpooling, Commit and reads from disk wait, the rest does not. A Log has
// no goroutine: Spooler.Run spools old entries, in all logs of a bridge. One lock guards a Log and
// its cursors. It is not held while anything is encoded, read from disk, or committed.
package changelog
