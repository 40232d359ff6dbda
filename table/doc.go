// Package table writes every change of a stream as a row of an Iceberg table.
//
// In: what source reads of JetStream or Kafka. Out: rows of the table changes, and a table
// coverage that says for which times they are complete.
//
// # Promises
//
//   - Each message of the stream is one row, once. The position of the stream is in the summary of
//     the snapshot that adds the rows: one commit has both. A start reads it back.
//   - A repeat in the stream is dropped by (source, informer, id), as far back as MaxRemembered
//     messages of a lane.
//   - A stream that was recreated ends the writer (source.ErrOther), but with Options.Recreated:
//     its rows are of the next incarnation, also those with an id that the stream before had. Of an
//     object the newest row has the greatest incarnation, and of these the greatest sequence.
//   - The table coverage claims nothing between what was read of a stream and the first list of the
//     next one.
//   - Of two writers one ends with ErrOtherWriter. The catalog decides: a commit names the snapshot
//     that it follows.
//   - Memory does not grow with the number of objects or rows, but with that of lists and gaps.
//
// Run owns its goroutines and returns after they ended. Nothing here is shared between goroutines.
package table
