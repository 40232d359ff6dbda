// Package statedb opens, writes and watches the database of a state directory (Pebble); what is
// kept in it is the matter of internal/store. It never loses a commit in silence: a full or
// read-only disk is waited for, and what can't be waited for, or is damaged, ends the process with
// a reason.
//
// Takes in: batches of the keys and values of others. Hands out: whether they are on disk, how much
// room is left, and the database to be read. Its own keys are format, cluster, secret, and a mark
// that the last run ended in order.
//
// Commit returns ErrUnavailable while the disk refuses writes, Finish waits until it accepts them.
package statedb
