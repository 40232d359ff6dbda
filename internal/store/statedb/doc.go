// Package statedb opens, writes and watches the database of a state directory (Pebble). Only
// internal/store knows what lies in it. statedb never loses a commit in silence: it waits for a
// full or read-only disk. Where waiting does not help, or a file is damaged, it ends the process
// with a reason.
//
// In come batches of keys and values. Out goes whether they are on disk, how much room is left, and
// the database for reads. Its own keys are format, cluster, secret, and a mark that the last run
// ended in order.
//
// Blocking: Commit returns ErrUnavailable while the disk refuses writes, Finish waits until it
// accepts them. Open starts Pebble's goroutines, Close ends them.
package statedb
