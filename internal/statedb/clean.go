package statedb

import "github.com/cockroachdb/pebble/v2"

// A mark in the database: the last run ended with everything that it had sent settled. Without one,
// sinks may have got events that are not known here, except announced ones.

// WasClean reports whether the last run ended in order, or there was none.
func (db *DB) WasClean() bool { return db.wasClean }

// BeginRun removes the mark, before anything is sent.
func (db *DB) BeginRun() error {
	b := db.pebble.NewBatch()
	return db.Finish(b, pebble.Sync, b.Delete(MetaKey("clean"), nil))
}

// EndRun sets the mark: everything that was sent is settled, and committed.
func (db *DB) EndRun() error { return db.set(MetaKey("clean"), nil) }

func (db *DB) readClean() error {
	mark, err := db.Get(MetaKey("clean"))
	db.wasClean = db.wasClean || mark != nil
	return err
}
