package store

import (
	"fmt"
	"strconv"
)

// Selection is how often the informer has selected something else before. Objects that are selected
// again may come in a version that was sent before, and need other ids.
func (ix *Indexer) Selection() int { return int(ix.selection.Load()) }

// AdoptSelection raises the number to that of another replica, so that both use the same ids.
func (ix *Indexer) AdoptSelection(number int) error {
	if number <= ix.Selection() {
		return nil
	}
	b := ix.db.NewBatch()
	b.setSelection(ix, number)
	if err := ix.db.finish(b.batch, ix.db.sync, b.errs...); err != nil {
		return err
	}
	ix.selection.Store(int64(number))
	return nil
}

func (ix *Indexer) loadSelection() error {
	value, err := ix.db.get(prefix(spaceSelection, ix.id))
	if err != nil || value == nil {
		return err
	}
	number, err := strconv.Atoi(string(value))
	if err != nil {
		return fmt.Errorf("how often the selection was another does not parse: %w", err)
	}
	ix.selection.Store(int64(number))
	return nil
}

func (b *Batch) setSelection(ix *Indexer, number int) {
	b.put(prefix(spaceSelection, ix.id), strconv.AppendInt(nil, int64(number), 10))
}

// reselect adds to a batch that the selection is another. Objects that had left may be selected now
// in the same version, so nothing is remembered of them: a list follows, and no watch brings
// earlier versions. They are forgotten at once: without the batch, at worst deletes are sent again.
func (b *Batch) reselect(ix *Indexer) {
	b.fail(ix.loadSelection())
	b.setSelection(ix, ix.Selection()+1)
	b.fail(ix.dropAllTombstones((*Batch).Commit))
}
