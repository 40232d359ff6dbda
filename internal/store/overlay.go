package store

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// NewState is the state in which a change leaves an object.
type NewState struct {
	Record
	Object *resource.Object // nil when deleted
	Seq    uint64
}

// Get returns the newest record of an object, tombstones included. Found is false for an object
// never seen, or deleted and forgotten.
func (ix *Indexer) Get(key resource.Key) (rec Record, found bool, err error) {
	ix.mu.RLock()
	if over, ok := ix.overlay[key]; ok {
		ix.mu.RUnlock()
		return over.Record, true, nil
	}
	settled, isKnown := ix.records.get(key)
	isElsewhere := ix.uncached.mayExist(key)
	ix.mu.RUnlock()
	switch {
	case isKnown:
		return settled.record(), true, nil
	case !isElsewhere:
		return Record{}, false, nil
	}
	// Not in the overlay: a change that was there was committed before it was removed, so the
	// database has it.
	value, closer, err := ix.db.pebble.Get(objectKey(spaceRecord, ix.id, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("state database: %w", err)
	}
	rec, err = parseRecord(value)
	return rec, err == nil, errors.Join(err, closer.Close())
}

// ChangedSince reports whether an object has an unsettled change with a later number than seq.
func (ix *Indexer) ChangedSince(key resource.Key, seq uint64) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	over, ok := ix.overlay[key]
	return ok && over.Seq > seq
}

// Object returns the newest known state of an object, nil when it is not known or gone.
func (ix *Indexer) Object(key resource.Key) (*resource.Object, error) {
	ix.mu.RLock()
	over, ok := ix.overlay[key]
	ix.mu.RUnlock()
	if ok {
		return over.Object, nil
	}
	return ix.settledObject(key)
}

// settledObject reads a body from the database.
func (ix *Indexer) settledObject(key resource.Key) (*resource.Object, error) {
	value, closer, err := ix.db.pebble.Get(objectKey(spaceBody, ix.id, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state database: %w", err)
	}
	obj, err := ix.parseBody(key, value)
	return obj, errors.Join(err, closer.Close())
}

func (ix *Indexer) parseBody(key resource.Key, stored []byte) (*resource.Object, error) {
	raw, err := ix.db.bodies.decode(stored)
	if err != nil {
		return nil, err
	}
	obj, err := resource.Restore(raw, ix.cfg.Type)
	if err != nil {
		return nil, fmt.Errorf("state database: body of %s %s: %w", ix.cfg.Type, key, err)
	}
	return obj, nil
}

// Update makes s the newest state of an object: it lives, or is gone. Seq orders the changes of one
// informer.
func (ix *Indexer) Update(key resource.Key, s NewState) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.overlay[key] = s
}
