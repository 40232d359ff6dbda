// Package source reads what a sink has stored: the messages of a JetStream stream, of Kafka topics,
// or of a file, as the events that they are.
//
// In: the address of a source, and a Position to continue from. Out: Messages, in each lane in the
// order in which they are stored. A lane is a stream, a partition, or a file.
//
// # Promises
//
//   - Every message that the source held when Messages was called is given, or an error says why
//     the reading ended before. What is no event of the bridge is given too, and named (Other).
//   - A Reader continues: another call of Messages gives what was stored since. So does a new
//     Reader with the Position of an old one, after any restart. A source that was recreated
//     meanwhile is refused (ErrOther).
//   - A Reader writes, acknowledges and changes nothing (Delete removes messages). JetStream is
//     read with an ordered consumer, which the server keeps in memory for as long as it is used; of
//     Kafka's transactions only what was committed is read, and no consumer group is joined.
//   - Memory is bounded: what a source announces is not believed beyond the bounds of the sinks.
//
// A Reader is used by one goroutine. Open connects and Close disconnects. Messages runs on its
// caller's goroutine, blocks while it waits for the source, and ends with an error when nothing
// comes for Config.Patience.
package source
