package store

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Batch is one atomic commit: settled objects and watermarks of any number of informers. It is used
// by one goroutine.
type Batch struct {
	db    *DB
	batch *pebble.Batch
	body  []byte // reused between bodies, as are those below
	key   []byte
	value []byte
	errs  []error
}

// NewBatch begins a commit.
func (db *DB) NewBatch() *Batch {
	return &Batch{db: db, batch: db.state.NewBatch()}
}

// keyOf is objectKey in the batch's own memory: it is valid until the next.
func (b *Batch) keyOf(space byte, ix *Indexer, key resource.Key) []byte {
	b.key = append(appendPrefix(b.key[:0], space, ix.id), key...)
	return b.key
}

func (b *Batch) put(key, value []byte) { b.Fail(b.batch.Set(key, value, nil)) }

// Fail has Commit return an error, unless err is nil.
func (b *Batch) Fail(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// Empty reports whether there is nothing to commit.
func (b *Batch) Empty() bool { return b.batch.Empty() && len(b.errs) == 0 }

// Len is the size of the batch in bytes.
func (b *Batch) Len() int { return b.batch.Len() }

// Commit writes everything or nothing, and returns when it is durable. The batch is spent. With
// statedb.ErrUnavailable the disk is full or read-only, and the batch may still be written, before
// any later commit: its contents must be in the next one too.
func (b *Batch) Commit() error {
	if err := errors.Join(b.errs...); err != nil {
		return fmt.Errorf("state database: %w", errors.Join(err, b.batch.Close()))
	}
	if b.batch.Empty() {
		return statedb.Wrap(b.batch.Close())
	}
	return b.db.state.Commit(b.batch)
}
