// Package kafka is the Kafka sink: events in, one CloudEvent per record out, in the Kafka protocol
// binding's binary or structured mode, or as flat records.
//
// Takes in: sinks.Messages of one lane at a time. Hands on: record batches to the lane's partition.
// A lane is one partition of one topic ("k8s.prod.pods/3"), and all events of an object have one
// key and so one lane. The partition is the one that Java's default partitioner (and librdkafka's
// murmur2) computes from the key and the partition count that the topic had when the sink first
// looked it up. A topic that grows keeps its old modulus until the sink is opened again.
//
// Order: every lane is an idempotent producer of its own: its batches are numbered, and at most one
// is in flight. A batch with an unknown result (timeout, lost connection, a leader that moved) is
// sent again byte for byte until the broker has answered or the caller's context ends. The broker
// stores it once, and a delayed first attempt can't be stored behind a later batch.
//
// Duplicates: none while the process lives and the broker remembers the producer. Where the broker
// has forgotten it, the lane reads the tail of its partition to see whether the batch in flight is
// there, and continues under its next epoch. A new process reads back what was stored behind the
// last checkpoint's position (ReadBack, readback.go), and its lanes continue with the producer ids
// and sequence numbers of the old process (resumed.go).
//
// Durability: acks=all, always. That is as much as the topic's replication.factor and
// min.insync.replicas make of it; the log warns of topics whose settings break the promise.
//
// Refusals: a record that the broker will never accept gets sinks.Refused; the batch around it is
// split until only that record is left out, and the others are stored in order.
//
// Blocking: Publish blocks until its lane has an answer; other lanes are not delayed. When no
// broker has answered for 5 seconds, Publish returns sinks.Reconnect, and the next call settles the
// batch in flight first. Blocked reports what needs an operator. Lane blocks for the look-up of a
// topic.
//
// Start and stop: New checks the configuration, Open connects, Close ends the connections. There
// are no goroutines in between: every request runs on its caller's. Of kafka-go the package uses
// messages, encoder, compression and SASL; decision 3 says why not the rest.
package kafka
