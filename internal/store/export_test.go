package store

import "github.com/cockroachdb/pebble/v2"

// Marks counts the objects that are marked as listed.
func (ix *Indexer) Marks() (n int, err error) {
	it, err := ix.iterator(spaceMark)
	if err != nil {
		return 0, err
	}
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n, it.Close()
}

// FlushedTables flushes, and gives the first letters of the first and the last key of each sorted table.
func (db *DB) FlushedTables() (bounds []string, err error) {
	if err := db.pebble.Flush(); err != nil {
		return nil, err
	}
	levels, err := db.pebble.SSTables()
	for _, level := range levels {
		for _, table := range level {
			bounds = append(bounds, string([]byte{table.Smallest.UserKey[0], table.Largest.UserKey[0]}))
		}
	}
	return bounds, err
}

// PebbleMetrics are Pebble's own.
func (db *DB) PebbleMetrics() *pebble.Metrics { return db.pebble.Metrics() }
