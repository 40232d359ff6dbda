// Package history keeps every version of every object that a stream reports, and answers what an
// object was at a time, what changed, and what happened in a namespace.
//
// In: events, in batches, from a sink or from an archiver that reads a broker. Out: versions of an
// object, the timeline of a namespace or a cluster, the objects that lived at a time, and notices:
// what the stream itself says about gaps, drops, and how far it is complete.
//
// # Promises
//
//   - A batch is durable when Append returns: all of its events, and the position of its source,
//     or nothing.
//   - The same event written twice is one version. Order does not matter: an event that comes late
//     finds its place by its sequence.
//   - A version is returned with the attributes and the bytes that it came with. Of payload forms
//     with two objects or a patch, the object is kept where it is known.
//   - Memory is bounded: answers stream, and the writer keeps the last versions of the objects that
//     change in a cache of a fixed size.
//   - One process writes. Others may read beside it (Read): they see what was durable when they
//     began.
//
// # Layout
//
// One Pebble database. Package keys has its keys, package record what lies under them. A version is
// stored whole, or as the difference to the one before it: at most 31 differences follow each
// other. Versions of one object are neighbours, so that the compression of blocks of 64 KiB finds
// what is left.
//
// The timeline has what each version changed, in short, as package resource/diff finds it: so a
// question about a namespace reads no versions. Beside the versions lie the lives: which name lived
// from when to when. So a state looks at the objects of that time, not at all names ever known. The
// writes in audit logs lie under what they claim to have seen, and are joined with versions when
// that is asked for (package audit).
//
// This package opens the database, writes to it, and removes what is too old. Package query
// answers, package ask answers requests, package serve is an API server over it.
//
// A DB has a part for each kind of user: Writer, Questions, and Maintenance. Append is called by
// one goroutine at a time, everything else by any. The package starts no goroutines but Pebble's
// own.
package history
