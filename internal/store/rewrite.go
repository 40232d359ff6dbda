package store

import (
	"bytes"
	"context"
	"errors"

	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Rewrite rewrites all bodies, those of announcements too, and all entries of the log. When it
// returns nil, nothing of the old ones is on disk, except what the file system keeps. It is for an
// Indexer that nothing else uses yet.
func (ix *Indexer) Rewrite(body, entry func([]byte) ([]byte, error)) error {
	stored := func(stored []byte) ([]byte, error) {
		raw, err := ix.db.bodies.decode(stored)
		if err != nil {
			return nil, err
		}
		if raw, err = body(raw); err != nil {
			return nil, err
		}
		return ix.db.bodies.encode(nil, raw), nil
	}
	announced := func(value []byte) ([]byte, error) {
		_, tail, err := parseAnnouncement("", value)
		if err != nil || len(tail) == 0 {
			return value, err
		}
		rewritten, err := stored(tail)
		return append(bytes.Clone(value[:len(value)-len(tail)]), rewritten...), err
	}
	spaces := map[byte]func([]byte) ([]byte,
		error){spaceBody: stored, spaceLog: entry, spaceAnnounced: announced}
	for space, change := range spaces {
		if err := ix.rewrite(space, change); err != nil {
			return err
		}
	}
	for space := range spaces {
		begin := prefix(space, ix.id)
		if err := ix.db.pebble.Compact(context.Background(), begin, after(begin),
			false); err != nil {
			return statedb.Wrap(err)
		}
	}
	return nil
}

// rewrite replaces every value of a space that changes.
func (ix *Indexer) rewrite(space byte, change func([]byte) ([]byte, error)) error {
	it, err := ix.iterator(space)
	if err != nil {
		return err
	}
	defer it.Close()
	b := ix.db.NewBatch()
	for it.First(); it.Valid(); it.Next() {
		value, err := change(it.Value())
		if err != nil {
			return errors.Join(err, b.batch.Close())
		}
		if !bytes.Equal(value, it.Value()) {
			b.put(bytes.Clone(it.Key()), value)
		}
		const enough = 8 << 20
		if b.Len() > enough {
			if err := b.Commit(); err != nil {
				return err
			}
			b = ix.db.NewBatch()
		}
	}
	if err := it.Error(); err != nil {
		return errors.Join(statedb.Wrap(err), b.batch.Close())
	}
	if err := b.Commit(); err != nil {
		return err
	}
	return statedb.Wrap(ix.db.pebble.Flush())
}
