// Package tracing reports to an OpenTelemetry collector how long each change took from when the
// bridge observed it to when a sink had it. It gives each event the context of that span, as
// CloudEvents' distributed tracing extension has it (traceparent). So what consumers do with an
// event is part of its trace.
//
// It takes in the source and id of events, for their context, and settled items, for their spans.
// It hands spans to a collector over OTLP/HTTP.
//
// What it promises. Ids of traces and spans are made of the event's source, id, informer and sink
// alone: an event that is sent again, after a crash or by another replica, has the same
// traceparent, and all events of one change are one trace. Whether a trace is sampled depends on
// its id alone too. Nobody on the road waits: what the collector does not take is bounded in
// memory, and dropped and counted beyond. Nothing of an object is in a span but its name and place.
//
// Run ends with its context, after the queued spans were sent or some seconds have passed.
package tracing
