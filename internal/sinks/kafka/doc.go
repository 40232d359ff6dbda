// Package kafka is the Kafka sink: events in, one CloudEvent per record out, in the Kafka protocol
// binding's binary or structured mode.
//
// It takes in sinks.Messages of one lane at a time and hands on record batches to the lane's
// partition. A lane is one partition of one topic ("k8s.prod.pods/3"); all events of an object have
// the same key and so the same lane. The partition is the one that Java's default partitioner (and
// librdkafka's murmur2) computes from the key and the partition count that the topic had when the
// sink first looked it up. A topic that grows keeps its old modulus until the sink is opened again,
// since a changing modulus would split an object's history.
//
// # What it promises
//
// Order: the messages of one Publish call are stored in the order given, and Publish calls of a
// lane in the order they were made. Every lane is an idempotent producer of its own: its batches
// are numbered, and at most one is in flight. A batch with an unknown result (timeout, lost
// connection, a leader that moved) is sent again byte for byte until the broker has answered or the
// caller's context ends. The broker stores it once, and a delayed first attempt can't be stored
// behind a later batch.
//
// Duplicates: none while the process lives, as long as the broker remembers the producer. Where it
// has forgotten (retention, an unclean election, a recreated topic), the lane reads the tail of its
// partition to see whether the batch in flight is there, and continues under its next epoch. A new
// process reads back what was stored behind the last checkpoint's position (Recall). Its lanes
// continue with the producer ids and sequence numbers of the old process. So the old process's
// unanswered batch is found even if it is stored late, and is never stored behind later records.
// The broker may mistake one batch for the other, so the first acknowledgement of such a lane
// counts only when its batch was seen (resumed.go). What Recall can't read at the moment, a lane
// reads before its first batch (readback.go).
//
// Durability: acks=all, always. That is as much as the topic's replication.factor and
// min.insync.replicas make of it; the log warns of topics whose settings break the promise.
//
// Refusals: a record that the broker will never accept (too large, refused by a policy) gets
// sinks.Refused; the batch around it is split until only that record is left out, and the others
// are stored in order.
//
// Blocking: Publish blocks until its lane has an answer, as long as any broker answers anything;
// other lanes are not delayed. When no broker has answered for 5 seconds, Publish returns
// sinks.Reconnect, and the lane remembers the batch in flight: the next call settles that batch
// first, and does not store its messages a second time. Blocked reports what needs an operator (a
// topic that was deleted, an address that is not a Kafka broker's). Lane blocks for the look-up of
// a new topic.
//
// # Who starts and stops it
//
// New checks the configuration, Open connects, Close ends the connections. There are no goroutines
// in between: every request runs on its caller's. The package uses kafka-go's messages, encoder,
// compression and SASL layers. It does not use the Writer (which can't be idempotent), the
// Transport (which polls the metadata of all topics, does not look again when a leader moved, and
// may still read a request's bytes after it has returned), nor the decoder (which allocates as much
// as an answer claims to hold).
package kafka
