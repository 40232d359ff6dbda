package statedb

import "github.com/cockroachdb/pebble/v2"

// Runs is a mark in the database: the last run ended with everything that it had sent settled.
// Without one, sinks may have got events that are not known here, except announced ones.
type Runs struct {
	db *DB
	// wasClean: the run before ended in order, or there was none. Set by Open.
	wasClean bool
}

// WasClean reports whether the last run ended in order, or there was none.
func (r *Runs) WasClean() bool { return r.wasClean }

// Begin removes the mark, before anything is sent.
func (r *Runs) Begin() error {
	b := r.db.pebble.NewBatch()
	return r.db.Finish(b, pebble.Sync, b.Delete(MetaKey("clean"), nil))
}

// End sets the mark: everything that was sent is settled, and committed.
func (r *Runs) End() error { return r.db.set(MetaKey("clean"), nil) }

func (r *Runs) read() error {
	mark, err := r.db.Get(MetaKey("clean"))
	r.wasClean = r.wasClean || mark != nil
	return err
}
