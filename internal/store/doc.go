// Package store keeps what the bridge knows of the cluster's objects: the Indexer, which is the
// settled state on disk plus an overlay of unsettled changes. All units share one state database,
// which internal/store/statedb opens and writes.
//
// In comes each change that the controller decides (Update), and settled states, in atomic commits
// (Batch). Out go an object's newest version and body, and consistent iteration over all objects,
// or those of a namespace.
//
// An Indexer has the objects of one unit. The rest of the unit's state has types of its own: Meta,
// Announcements, Listing, StaleBodies, Log.
//
// A read returns the newest state that the controller has applied. A crash leaves the last settled
// state, so after a restart the old object of a replayed change is again the version before it. In
// memory an object at rest costs its cached record; bodies are read from the database's cache or
// disk.
//
// A full or read-only disk fails commits with statedb.ErrUnavailable until it accepts writes again;
// reads continue (docs/design.md).
//
// Concurrency: one controller writes to an Indexer, any goroutine may read; commits come from one
// committer. No lock is held during I/O. The package starts no goroutines except Pebble's own,
// which Close ends.
package store
