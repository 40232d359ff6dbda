package store

import "errors"

// SetDiverged records, durably, that the server's history was found to be another, though its
// version is not lower. The list that follows removes the record when it begins an epoch.
func (ix *Indexer) SetDiverged() error {
	b := ix.db.NewBatch()
	b.put(prefix(spaceDiverged, ix.id), nil)
	return ix.db.finish(b.batch, ix.db.sync, b.errs...)
}

// Diverged reports whether everything must be listed and compared by equality before anything else
// is read: the server's history is another than the known one, and the list that follows from that
// is not settled. A watch from the position would not show it: the server may have reached that
// version again.
func (ix *Indexer) Diverged() (bool, error) {
	noted, err := ix.divergedOnDisk()
	e, failed := ix.Epoch()
	return noted || e.Open, errors.Join(err, failed)
}

func (ix *Indexer) divergedOnDisk() (bool, error) {
	value, err := ix.db.get(prefix(spaceDiverged, ix.id))
	return value != nil, err
}
