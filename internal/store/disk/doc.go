// Package disk has what the two databases of the bridge share: an Opener, and a file system (FS)
// for a database that must outlast a full disk. An operation that the disk can't take, for lack of
// space or because it is read-only for a while, waits and is tried again. It does not return an
// error.
//
// In come the operations of Pebble, which ends its process when its log or its list of files can't
// be written: an error from its log makes it panic, with a mutex unlocked that a deferred call
// unlocks again. Out goes whether an operation waits (Err, Stalled), so that nobody else begins a
// write meanwhile. Beside the database lies what of its journals is synced (SumsFile): the Opener
// refuses a database that has lost some of that.
//
// What was acknowledged is true: a write returns when it was written, a sync when it was synced. A
// failed sync is never just repeated, since the kernel forgets data that it could not write: that
// data is written again first.
//
// Concurrency: as vfs.FS. An operation that waits occupies its goroutine until the disk takes it.
// The FS starts no goroutine; the Opener starts one, which ends when the database is open, or stays
// where Pebble can't continue.
package disk
