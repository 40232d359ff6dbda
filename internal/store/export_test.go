package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// Table is the table of known records; one byte stands for a uid.
type Table struct{ t *recordCache }

func NewTable() Table { return Table{newRecordCache()} }

// SetHash replaces the hash of keys, before the first is put.
func (t Table) SetHash(hash func(resource.Key) uint64) { t.t.hash = hash }

func (t Table) Put(key resource.Key, uid byte, version uint64) bool {
	return t.t.put(key, cachedRecord{uid: [16]byte{15: uid}, version: version, eventTime: int64(version)})
}

func (t Table) Get(key resource.Key) (uid byte, version uint64, behind, ok bool) {
	k, ok := t.t.get(key)
	if k.eventTime != int64(k.with(false).version) {
		return 0, 0, false, false
	}
	return k.uid[15], k.with(false).version, k.isStale(), ok
}

func (t Table) SetStale(key resource.Key, is bool) { t.t.setStale(key, is) }

func (t Table) Remove(key resource.Key) { t.t.remove(key) }

// Bytes is what the records take.
func (t Table) Bytes() (n int) {
	for _, c := range t.t.chunks {
		n += len(c)
	}
	return n
}

// CountListed counts the objects that were listed.
func (ix *Indexer) CountListed() (n int, err error) {
	it, err := ix.iterator(spaceListed)
	if err != nil {
		return 0, err
	}
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n, it.Close()
}

// FlushedTables flushes, and gives the first letters of the first and the last key of each sorted
// table.
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

// IndexSpace counts the entries of indexes, and the objects that have values.
func (ix *Indexer) IndexSpace(t *testing.T) (entries, values int) {
	t.Helper()
	for space, n := range map[byte]*int{spaceEntry: &entries, spaceValues: &values} {
		it, err := ix.iterator(space)
		if err != nil {
			t.Fatal(err)
		}
		for it.First(); it.Valid(); it.Next() {
			*n++
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return entries, values
}

// Tombstones counts them.
func (ix *Indexer) Tombstones() (n int, err error) {
	it, err := ix.iterator(spaceTombstone)
	if err != nil {
		return 0, err
	}
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n, it.Close()
}
