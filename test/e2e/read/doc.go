// Package read is an independent reader of what a bridge published: it reads all that a JetStream
// stream or the topics of a Kafka cluster hold, with other clients than the product's own where
// there are others, and makes events of it with the CloudEvents SDK's own bindings.
//
// A reader keeps what it has read, and each Refresh adds what has come since; a message that is no
// valid CloudEvent is an error.
package read
