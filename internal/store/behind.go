package store

import (
	"errors"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/resource"
)

// An object is behind when its body on disk is of an earlier version than its record, because of a
// flood of updates. A key in the database records that, in the same commit, so that stale bodies
// can be found without reading all, also after a crash. It costs one small key for each such
// object, not for each update. An object that is behind always has the key. One whose body is right
// may have it too, when a failed commit was written after all.

// behind has those of one informer.
type behind struct {
	n atomic.Int64
	// changed are the keys that commits since the last successful one add or drop. Owned by the
	// committer.
	changed map[resource.Key]noted
}

// noted is whether an object had the key before a commit, and has it after.
type noted struct{ was, is bool }

// Behind counts the objects of which the database has the body of an earlier version only.
func (ix *Indexer) Behind() int { return int(ix.behind.n.Load()) }

// BehindFrom returns up to limit of them, in order of their keys, after a key; "" for the first.
func (ix *Indexer) BehindFrom(key resource.Key, limit int) (keys []resource.Key, err error) {
	it, err := ix.iterator(spaceBehind)
	if err != nil {
		return nil, err
	}
	begin := len(prefix(spaceBehind, 0))
	for ok := it.SeekGE(append(objectKey(spaceBehind, ix.id, key), 0)); ok &&
		len(keys) < limit; ok = it.Next() {
		keys = append(keys, resource.Key(it.Key()[begin:]))
	}
	return keys, wrap(errors.Join(it.Error(), it.Close()))
}

// IsBehind reports whether an object is one of them.
func (ix *Indexer) IsBehind(key resource.Key) (bool, error) {
	if ix.behind.n.Load() == 0 {
		return false, nil
	}
	value, err := ix.db.get(objectKey(spaceBehind, ix.id, key))
	return value != nil, err
}

// countBehind counts those of earlier runs.
func (ix *Indexer) countBehind() error {
	ix.behind.changed = map[resource.Key]noted{}
	it, err := ix.iterator(spaceBehind)
	if err != nil {
		return err
	}
	n := int64(0)
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	ix.behind.n.Store(n)
	return wrap(errors.Join(it.Error(), it.Close()))
}

// setBehind adds to a commit that an object is behind, or is not any more.
func (b *Batch) setBehind(ix *Indexer, key resource.Key, k *cacheLookup, is bool) {
	now, retried := ix.behind.changed[key]
	if !retried {
		was, err := ix.wasBehind(key, k)
		b.fail(err)
		if was == is {
			return
		}
		now.was = was
	}
	now.is = is
	// a failed commit may be written yet: so this one writes its own result in any case
	ix.behind.changed[key] = now
	if is {
		b.put(b.keyOf(spaceBehind, ix, key), nil)
	} else {
		b.fail(b.batch.Delete(b.keyOf(spaceBehind, ix, key), nil))
	}
}

// wasBehind reports whether an object had the key as of the last commit.
func (ix *Indexer) wasBehind(key resource.Key, k *cacheLookup) (bool, error) {
	if ix.behind.n.Load() == 0 {
		return false, nil
	}
	if k.find(ix, key); k.ok {
		return k.behind(), nil
	}
	return ix.IsBehind(key)
}

// rememberBehindLocked takes over the keys of a successful commit.
func (ix *Indexer) rememberBehindLocked() {
	for key, c := range ix.behind.changed {
		ix.records.setBehind(key, c.is)
		switch {
		case c.is && !c.was:
			ix.behind.n.Add(1)
		case c.was && !c.is:
			ix.behind.n.Add(-1)
		}
	}
	clear(ix.behind.changed)
}

// Body is an object as the API server has it.
type Body struct {
	Key    resource.Key
	Object *resource.Object
}

// CatchUp writes the body of an object that is behind, if it is of exactly the committed version.
// It comes before the Settle calls of its batch: they are of later states, which may leave their
// bodies.
func (b *Batch) CatchUp(ix *Indexer, body Body) {
	rec, found, err := ix.committed(body.Key)
	b.fail(err)
	if !found || rec.Deleted || rec.UID != body.Object.UID || rec.Version != body.Object.Version {
		return
	}
	b.body = ix.db.bodies.encode(b.body, body.Object.Raw)
	b.put(b.keyOf(spaceBody, ix, body.Key), b.body)
	b.setBehind(ix, body.Key, &cacheLookup{}, false)
}

// committed returns the record of an object as of the last commit.
func (ix *Indexer) committed(key resource.Key) (rec Record, found bool, err error) {
	ix.mu.RLock()
	k, ok := ix.records.get(key)
	ix.mu.RUnlock()
	if ok {
		return k.record(), true, nil
	}
	value, err := ix.db.get(objectKey(spaceRecord, ix.id, key))
	if err != nil || value == nil {
		return rec, false, err
	}
	rec, err = parseRecord(value)
	return rec, err == nil, err
}
