// Package nats is the sink for NATS: JetStream streams, or core NATS subjects.
//
// It takes events from a publisher and hands on one NATS message per event, a CloudEvent in the NATS protocol binding,
// under a subject made of the event's fields.
//
// With JetStream (the default) an acknowledged message is stored in the stream. The sink keeps no order by itself
// (sinks.ByObject): the caller has at most one message of an object on its way, and messages of different objects are
// pipelined. The sink never resends. A message without an ack within AckTimeout, or on a connection that broke, is
// answered Retry or Reconnect, and the caller sends it again: every message bears a Nats-Msg-Id that does not change, so
// the stream removes what it has stored already, within its duplicates window. This holds through the crash of a
// stream's leader, where a client that pipelines messages of one object stores them out of order. Beyond the window the sink looks for itself: before
// it sends again what has been without an answer for longer than half of it, it reads the ids of what the stream has stored since
// that was first sent; and after a crash it reads back the tail behind the position in the checkpoint (sinks.Recaller).
//
// An acknowledgement is as durable as the stream: the server acknowledges before it syncs to disk, so a single server that
// loses power can lose the last seconds (its sync_interval); three replicas, or sync_interval: always, do not.
//
// There may be several streams, by a template of the name: each is met, and made where that is configured, with its first event.
//
// What is too large for the server or the stream is told before it is sent (sinks.Sizer), and its payload can be kept in a bucket of the object
// store (sinks.ClaimChecker).
//
// With Mode Core an acknowledged message has been read by the server, no more: at most once, to whoever listens.
//
// Publish blocks until every message has its answer, at most AckTimeout after the last one was written. Open starts the
// connection's goroutines, Close ends them.
package nats
