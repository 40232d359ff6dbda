// Package store keeps what the bridge knows of the cluster's objects: the Indexer, which is the
// settled state on disk plus an overlay of unsettled changes. All informers share one state
// database, which internal/store/statedb opens and writes.
//
// Takes in: each change the controller decides (Update, Delete), and what is settled, in atomic
// commits (Batch). Hands out: an object's newest version and body, and consistent iteration over
// all of them, or those of a namespace.
//
// An Indexer has the objects; what else is known of its unit is with types of their own: Meta,
// Announcements, Listing, Behind, Log.
//
// A read sees the newest state the controller has applied. A crash leaves the last settled state,
// so after a restart the old object of a replayed change is again the version before it. In memory
// an object at rest costs its cached record; bodies are read from the database's cache or disk.
//
// A full or read-only disk fails commits with statedb.ErrUnavailable until it accepts writes again;
// reads continue (docs/design.md).
//
// Concurrency: one controller writes to an Indexer, anyone may read; commits come from one
// committer. No lock is held during I/O. The package starts no goroutines but Pebble's own, which
// Close ends.
package store
