// Package client reads what the bridge has published, for programs that would otherwise watch the
// API server.
//
// A Client reads one source and gives two things. A source is a key-value bucket or a stream of
// JetStream, or topics of Kafka, compacted ones that the bridge keeps as a view or such with a
// history, or an archive that bridge serve serves, which gives the first thing only.
//
// A [cache.ListerWatcher] for each resource, so that client-go's SharedInformer and the caches of
// controller-runtime work unchanged, with the source in place of an API server. The Client holds
// each object once. All informers share its bytes and what was decoded of them, so many informers
// cost little more than one. As everywhere in client-go, objects are shared: whoever changes one
// copies it first.
//
// An iterator over events, without repeats, with gaps among them, and with positions that survive a
// restart.
//
// Informers need the state, so a bucket, a view or an archive is the better source for them: it has
// what exists, however old it is. From a stream or topics with a history the state is what all
// events come to, so they must hold a list of all objects (informer.synced) and everything since.
// Where they do not, List fails and says so. A list of a topic has ended when each partition has
// the event that says so.
//
// Run reads until its context ends. After an outage it continues where it was. What the informers
// promise then is what they promise with an API server: where changes may be missing (a gap, a
// stream that has dropped messages, a bucket that was recreated) each watch ends with 410 Gone. The
// informer lists again, and reports objects that vanished by a DeletedFinalStateUnknown.
package client
