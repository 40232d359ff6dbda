// Package store keeps what the bridge knows of the cluster's objects: the Indexer, which is the settled state on disk
// plus an overlay of what is on its way to the sinks, and the state database (Pebble) that all informers share.
//
// Takes in: each change the controller decides (Update, Delete), and what is settled, in atomic commits (Batch). Hands
// out: an object's newest version and body, objects by index, and consistent iteration over all of them.
//
// What a read sees is the newest state the controller has applied. What a crash leaves is the last settled state, so after
// a restart the old object of a replayed change is again the version before it. In memory an object at rest costs its index
// entries, if index functions are registered, and nothing else: versions and bodies are read from the database's cache or disk.
//
// A full or read-only disk fails commits with ErrUnavailable until it takes writes again; reads go on (docs/design.md).
//
// Concurrency: one controller writes to an Indexer, anyone may read; commits come from one committer. No lock is held
// during I/O. The package starts no goroutines but Pebble's own, which Close ends.
package store
