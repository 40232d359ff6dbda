// Package kafka is the Kafka sink: events in, one CloudEvent per record out, in the Kafka protocol binding's binary or
// structured mode.
//
// It takes in sinks.Messages of one lane at a time and hands on record batches to the lane's partition. A lane is one
// partition of one topic ("k8s.prod.pods/3"); an object's events all have the same key and so the same lane. The partition
// is the one that Java's default partitioner (and librdkafka's murmur2) gives the key, of the partition count that the topic
// had when the sink first met it: a topic that grows keeps its old modulus until the sink is opened again, since a
// changing modulus would tear an object's history in two.
//
// # What it promises
//
// Order: what one Publish call holds is stored in the order given, and Publish calls of a lane in the order they were made.
// Every lane is an idempotent producer of its own: its batches are numbered, at most one is on its way, and that one is
// frozen. A batch whose fate is unknown (timeout, lost connection, a leader that moved) is sent again byte for byte until the
// broker has answered or the caller's context ends; the broker stores it once, and a delayed first attempt can't come in
// behind a later batch.
//
// Duplicates: none while the process lives, as long as the broker remembers the producer. Where it has forgotten (retention, an
// unclean election, a re-created topic) the lane reads its own tail to see whether the frozen batch is there, and goes on
// under its next epoch. A new process reads back what was stored behind the last checkpoint's position (Recall), and its lanes carry on
// with the producer ids and sequence numbers of the old one, so that its unanswered batch is found even if it is stored late, and is never stored behind
// what came after it. The broker may take one batch for the other: so the first acknowledgement of such a lane counts only when its batch was seen (heir.go). What Recall
// can't read for the moment, a lane reads before its first batch (readback.go).
//
// Durability: acks=all, always. That is as much as the topic's replication.factor and min.insync.replicas make of it; the log
// warns of topics whose settings break the promise.
//
// Refusals: a record that the broker will never take (too large, refused by a policy) gets sinks.Refused; the batch around
// it is split until only that record is left out, and the others are stored in order.
//
// Blocking: Publish blocks until its lane has an answer, for as long as any broker says that there is something to wait for;
// other lanes are not delayed. When no broker has answered anything for 5 seconds it answers sinks.Reconnect, and the lane
// remembers the frozen batch: the next call settles that one first, and does not store its messages a second time. What waits for somebody to act (a topic
// that was deleted, an address that is something else's) Blocked tells.
// Lane blocks for the look-up of a topic it has not met before.
//
// # Who starts and stops it
//
// New checks the configuration, Open connects, Close ends the connections. There are no goroutines in between: every request
// runs on its caller's. The package uses kafka-go's messages, encoder, compression and SASL layers. It does not use the Writer
// (which can't be idempotent), the Transport (which polls the metadata of all topics, does not look again when a leader moved, and
// may still read a request's bytes after it has returned), nor the decoder (which allocates as much as an answer claims to hold).
package kafka
