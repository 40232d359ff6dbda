package store

import "errors"

// SetUndone notes, durably, that the server's history was found to be another, though its version is not lower. The list that follows from that
// takes the note away when it begins an epoch.
func (ix *Indexer) SetUndone() error {
	b := ix.db.NewBatch()
	b.put(prefix(spaceUndone, ix.id), nil)
	return ix.db.finish(b.batch, ix.db.sync, b.errs...)
}

// Undone says whether everything has to be listed and compared by equality before anything else is read: the server's history is another than
// the one that is known, and the list that follows from that is not settled. Whether a watch from the position would tell says nothing: the
// server may have reached that version again.
func (ix *Indexer) Undone() (bool, error) {
	noted, err := ix.undoneNoted()
	e, failed := ix.Epoch()
	return noted || e.Open, errors.Join(err, failed)
}

func (ix *Indexer) undoneNoted() (bool, error) {
	value, err := ix.db.get(prefix(spaceUndone, ix.id))
	return value != nil, err
}
