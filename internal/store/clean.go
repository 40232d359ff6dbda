package store

// A mark says that the last run ended with everything that it had sent settled. Without one, sinks may have been sent things that nothing
// here knows of, but for what was announced.

// WasClean says whether the run before this one ended in order, or there was none.
func (db *DB) WasClean() bool { return db.wasClean }

// BeginRun takes the mark away, before anything is sent.
func (db *DB) BeginRun() error {
	b := db.NewBatch()
	return db.finish(b.batch, db.sync, b.batch.Delete(metaKey("clean"), nil))
}

// EndRun sets the mark: everything that was sent is settled, and committed.
func (db *DB) EndRun() error { return db.set(metaKey("clean"), nil) }

func (db *DB) readClean() error {
	mark, err := db.get(metaKey("clean"))
	db.wasClean = db.wasClean || mark != nil
	return err
}
