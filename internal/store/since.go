package store

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// Since is the version of the API server since which the state has every change: that of the last
// list of everything. "" during one, and when none was recorded.
func (ix *Indexer) Since() (resource.Version, error) {
	value, err := ix.db.get(prefix(spaceSince, ix.id))
	return resource.Version(value), err
}

// SetSince records the version of a list that has ended; "" when one begins. It does not wait for
// the disk: the database's log is in order, so a later commit with the list's changes is not on
// disk without it.
func (ix *Indexer) SetSince(version resource.Version) error {
	key, batch := prefix(spaceSince, ix.id), ix.db.pebble.NewBatch()
	if version == "" {
		return ix.db.finish(batch, pebble.NoSync, batch.Delete(key, nil))
	}
	return ix.db.finish(batch, pebble.NoSync, batch.Set(key, []byte(version), nil))
}
