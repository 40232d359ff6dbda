package store

import (
	"errors"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// A body on disk is stale when it is of an earlier version than its record, because of a flood of
// updates. A key in the database records that, in the same commit, so that stale bodies can be
// found without reading all, also after a crash. It costs one small key for each such object, not
// for each update. An object whose body is stale always has the key. One whose body is right may
// have it too, when a failed commit was written after all.

// StaleBodies has the objects of one informer whose bodies are stale.
type StaleBodies struct {
	ix *Indexer
	n  atomic.Int64
	// changed are the keys that commits since the last successful one add or drop. Owned by the
	// committer.
	changed map[resource.Key]keyChange
}

// keyChange is whether an object had the key before a commit, and has it after.
type keyChange struct{ was, is bool }

// Count is how many they are.
func (b *StaleBodies) Count() int { return int(b.n.Load()) }

// From returns up to limit of them, in order of their keys, after a key; "" for the first.
func (b *StaleBodies) From(key resource.Key, limit int) (keys []resource.Key, err error) {
	it, err := b.ix.iterator(spaceStale)
	if err != nil {
		return nil, err
	}
	begin := len(prefix(spaceStale, 0))
	for ok := it.SeekGE(append(objectKey(spaceStale, b.ix.id, key), 0)); ok &&
		len(keys) < limit; ok = it.Next() {
		keys = append(keys, resource.Key(it.Key()[begin:]))
	}
	return keys, statedb.Wrap(errors.Join(it.Error(), it.Close()))
}

// Has reports whether an object is one of them.
func (b *StaleBodies) Has(key resource.Key) (bool, error) {
	if b.n.Load() == 0 {
		return false, nil
	}
	value, err := b.ix.db.state.Get(objectKey(spaceStale, b.ix.id, key))
	return value != nil, err
}

// load counts those of earlier runs.
func (b *StaleBodies) load() error {
	b.changed = map[resource.Key]keyChange{}
	it, err := b.ix.iterator(spaceStale)
	if err != nil {
		return err
	}
	n := int64(0)
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	b.n.Store(n)
	return statedb.Wrap(errors.Join(it.Error(), it.Close()))
}

// setStale adds to a commit that the body of an object is stale, or is not any more.
func (b *Batch) setStale(ix *Indexer, key resource.Key, k *cacheLookup, is bool) {
	now, retried := ix.stale.changed[key]
	if !retried {
		was, err := ix.stale.had(key, k)
		b.Fail(err)
		if was == is {
			return
		}
		now.was = was
	}
	now.is = is
	// a failed commit may be written yet: so this one writes its own result in any case
	ix.stale.changed[key] = now
	if is {
		b.put(b.keyOf(spaceStale, ix, key), nil)
	} else {
		b.Fail(b.batch.Delete(b.keyOf(spaceStale, ix, key), nil))
	}
}

// had reports whether an object had the key as of the last commit.
func (b *StaleBodies) had(key resource.Key, k *cacheLookup) (bool, error) {
	if b.n.Load() == 0 {
		return false, nil
	}
	if k.find(b.ix, key); k.ok {
		return k.isStale(), nil
	}
	return b.Has(key)
}

// committedLocked takes over the keys of a successful commit.
func (b *StaleBodies) committedLocked() {
	for key, c := range b.changed {
		b.ix.records.setStale(key, c.is)
		switch {
		case c.is && !c.was:
			b.n.Add(1)
		case c.was && !c.is:
			b.n.Add(-1)
		}
	}
	clear(b.changed)
}

// Body is an object as the API server has it.
type Body struct {
	Key    resource.Key
	Object *resource.Object
}

// RefreshBody writes the body of an object whose own is stale, if it is of exactly the committed
// version. It comes before the Settle calls of its batch: they are of later states, which may leave
// their bodies.
func (b *Batch) RefreshBody(ix *Indexer, body Body) {
	rec, found, err := ix.committed(body.Key)
	b.Fail(err)
	if !found || rec.Deleted || rec.UID != body.Object.UID || rec.Version != body.Object.Version {
		return
	}
	b.body = ix.db.bodies.encode(b.body, body.Object.Raw)
	b.put(b.keyOf(spaceBody, ix, body.Key), b.body)
	b.setStale(ix, body.Key, &cacheLookup{}, false)
}

// committed returns the record of an object as of the last commit.
func (ix *Indexer) committed(key resource.Key) (rec Record, found bool, err error) {
	ix.mu.RLock()
	k, ok := ix.records.get(key)
	ix.mu.RUnlock()
	if ok {
		return k.record(), true, nil
	}
	value, err := ix.db.state.Get(objectKey(spaceRecord, ix.id, key))
	if err != nil || value == nil {
		return rec, false, err
	}
	rec, err = parseRecord(value)
	return rec, err == nil, err
}
