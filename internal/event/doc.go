// Package event is a change as a CloudEvent: its id, type, subject and payload, the forms it is
// sent in, and the templates that make a NATS subject or a Kafka topic of it.
//
// In: changes of objects, and news about an informer, through a Maker. Out: Events, CloudEvents 1.0
// as plain fields, for a sink to write as headers (Each), as one JSON document (AppendStructured)
// or as a row of a table (AppendFlat). With the payload object the payload is the object's JSON
// itself, not a copy.
//
// Back: a Message of a broker, or a document, is read through the CloudEvents SDK's bindings, as
// the SDK's event (CloudEvent) or as fields (Event).
//
// # Promises
//
//   - The same change makes the same id, from any replica and after any restart.
//   - Each gives the attributes in a fixed order and in their canonical form, so two encodings of
//     an event are byte-equal.
//   - A field put into a subject or topic is encoded so that two values never become one, and the
//     result is a valid token or part of a topic. With the default subject template two objects
//     never share a subject. The default topic template names the cluster and the resource only. A
//     topic may come out longer than the 249 characters that Kafka takes; the Kafka sink refuses
//     such an event, it does not shorten the name.
//
// Nothing here runs, blocks or locks. A Maker and a Template are immutable and may be shared; an
// Event does not change once it was handed to a publisher. Encoders append to what they are given;
// the text of the time is all they allocate.
package event
