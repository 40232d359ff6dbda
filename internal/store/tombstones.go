package store

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// maxDropped is how many tombstones one batch drops. Each is looked up and deleted one by one:
// 300,000 in one batch made it 42 MB, and stopped other commits for several seconds.
const maxDropped = 10_000

// DropPassed drops tombstones that a watermark has passed, up to 10,000. more: some are left for
// later batches. It comes before the Settle calls of its batch: an object that is settled in the
// same commit may exist again, and later operations of a batch win.
func (b *Batch) DropPassed(ix *Indexer, watermark resource.Version) (more bool) {
	if !watermark.Ordered() {
		return false
	}
	return b.dropTombstones(ix, prefix(spaceTombstone, ix.id),
		after(tombstoneKey(ix.id, watermark, ""))) != nil
}

// Rewind prepares for another history of the server: it forgets all deleted objects of an informer,
// durably, since their versions mean nothing any more. A crash amid that leaves some of them. And
// the next state of each object writes its body, since the one that is there may be of the lost
// history.
func (ix *Indexer) Rewind() error {
	ix.dropCache()
	return ix.dropAllTombstones(func(b *Batch) error {
		return ix.db.state.Finish(b.batch, pebble.Sync,
			b.errs...)
	})
}

func (ix *Indexer) dropAllTombstones(commit func(*Batch) error) error {
	begin := prefix(spaceTombstone, ix.id)
	end := after(begin)
	for next := begin; next != nil; {
		b := ix.db.NewBatch()
		next = b.dropTombstones(ix, next, end)
		if err := commit(b); err != nil {
			return err
		}
	}
	return nil
}

// dropTombstones deletes the records of deleted objects whose tombstone keys are between two keys,
// except those of objects that exist again; up to maxDropped of them. next is the key to continue
// with, nil for none.
func (b *Batch) dropTombstones(ix *Indexer, from, end []byte) (next []byte) {
	it, err := ix.db.pebble.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		b.Fail(err)
		return nil
	}
	n := 0
	for it.First(); it.Valid() && n < maxDropped; it.Next() {
		b.dropTombstone(ix, it.Key())
		n++
	}
	if it.Valid() {
		next = append([]byte{}, it.Key()...)
	}
	b.Fail(it.Close())
	return next
}

func (b *Batch) dropTombstone(ix *Indexer, tombstone []byte) {
	// One by one: ranges that all begin at the same key would overlap, and Pebble keeps n of them
	// in memory as n² pieces.
	b.Fail(b.batch.Delete(tombstone, nil))
	tail := tombstone[len(prefix(spaceTombstone, ix.id)):]
	versionEnd := 1 + int(tail[0])
	version, key := resource.Version(tail[1:versionEnd]), resource.Key(tail[versionEnd:])
	record := objectKey(spaceRecord, ix.id, key)
	value, err := ix.db.state.Get(record)
	if err != nil {
		b.Fail(err)
		return
	}
	if rec, err := parseRecord(value); value != nil && err == nil && rec.Deleted &&
		rec.Version == version {
		b.Fail(b.batch.Delete(record, nil))
	}
}
