// Package nats is the sink for NATS: JetStream streams, or core NATS subjects.
//
// It takes events from a publisher and hands on one NATS message per event, a CloudEvent in the
// NATS protocol binding, under a subject made of the event's fields.
//
// With JetStream (the default) an acknowledged message is stored in the stream. The sink keeps no
// order by itself (sinks.ByObject): the caller has at most one message of an object in flight, and
// messages of different objects are pipelined. The sink never sends a message twice by itself. A
// message without an ack within AckTimeout, or on a connection that broke, is answered Retry or
// Reconnect, and the caller sends it again. Every message has a Nats-Msg-Id that does not change,
// so the stream drops the second copy within its duplicates window. This holds through the crash of
// a stream's leader, where a client that pipelines messages of one object stores them out of order.
// Beyond the window the sink searches the stream itself. Before it sends a message again that has
// been unanswered for half of the window, it reads the ids of what the stream has stored since.
// After a crash it reads back what was stored behind the position in the checkpoint
// (sinks.ReadBacker).
//
// An acknowledgement is as durable as the stream: the server acknowledges before it syncs to disk,
// so servers that lose power can lose the last seconds (their sync_interval). Three replicas have
// outlived kills of servers in tests, and no test takes their power.
//
// There may be several streams, with a template as name: each is looked up, and created where that
// is configured, with its first event.
//
// A message that is too large for the server or the stream is refused before it is sent
// (sinks.Sizer), and its payload can be stored in a bucket of the object store
// (sinks.ClaimChecker).
//
// With Mode Core an acknowledged message was read by the server, no more: it is delivered at most
// once, to whoever listens.
//
// Publish blocks until every message has its answer, at most AckTimeout after the last one was
// written. Open starts the connection's goroutines, Close ends them.
package nats
