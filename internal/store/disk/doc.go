// Package disk is a file system for a database that must outlast a full disk. What the disk can't
// take for lack of space, or because it is read-only for a while, waits and is tried again. It does
// not come back as an error.
//
// Takes in: the operations of Pebble, which ends its process when its log or its list of files
// can't be written: an error from its log makes it panic, with a mutex unlocked that a deferred
// call unlocks again. Hands out: whether something waits (Err, Stalled), so that nobody else begins
// a write meanwhile, and how far files are synced (Config.Synced).
//
// What was acknowledged is true: a write returns when it was written, a sync when it was synced. A
// sync that failed is never just repeated, since the kernel forgets what it could not write: what
// lay behind it is written again first.
//
// Concurrency: as vfs.FS. An operation that waits occupies its goroutine until the disk takes it;
// the package starts none.
package disk
