package store

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// iterator over one space of the informer's keys.
func (ix *Indexer) iterator(space byte) (*pebble.Iterator, error) {
	return ix.iteratorOf(space, "")
}

// iteratorOf is one over the keys that begin with in.
func (ix *Indexer) iteratorOf(space byte, in resource.Key) (*pebble.Iterator, error) {
	return ix.db.iterator(ix.id, space, in)
}

// iterator over the keys of a unit in one space that begin with in.
func (db *DB) iterator(id uint32, space byte, in resource.Key) (*pebble.Iterator, error) {
	begin := objectKey(space, id, in)
	it, err := db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: begin,
		UpperBound: after(begin),
	})
	if err != nil {
		return nil, fmt.Errorf("state database: %w", err)
	}
	return it, nil
}

// inNamespace is what the keys of a namespace's objects begin with; of all objects for "".
func inNamespace(namespace string) resource.Key {
	if namespace == "" {
		return ""
	}
	return resource.MakeKey(namespace, "")
}

// Item is one live object of an iteration.
type Item struct {
	Key resource.Key
	Record
	ix     *Indexer
	object *resource.Object // when it is unsettled
}

// Object is the item's state, nil when it is gone by now.
func (i Item) Object() (*resource.Object, error) {
	if i.object != nil {
		return i.object, nil
	}
	return i.ix.settledObject(i.Key)
}

// All yields the live objects in order of their keys: the newest state of each at the call. It
// costs memory for unsettled changes, not for the objects.
func (ix *Indexer) All() iter.Seq2[Item, error] { return ix.all("") }

// InNamespace is All of the objects of one namespace, "" for all. It reads no others: keys are in
// order of namespaces.
func (ix *Indexer) InNamespace(namespace string) iter.Seq2[Item, error] {
	return ix.all(inNamespace(namespace))
}

// all yields those whose keys begin with in.
func (ix *Indexer) all(in resource.Key) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		// The overlay first: what a commit moves from it to the database in between is then in
		// both, never in none.
		ix.mu.RLock()
		overlay := maps.Clone(ix.overlay)
		ix.mu.RUnlock()
		unsettled := ix.unsettled(overlay, func(key resource.Key, _ *NewState) bool {
			return strings.HasPrefix(string(key), string(in))
		})
		merge(unsettled, ix.settled(in, overlay))(yield)
	}
}

// unsettled returns the live objects of an overlay that are wanted, in order of their keys.
func (ix *Indexer) unsettled(
	overlay map[resource.Key]NewState, wants func(resource.Key, *NewState) bool,
) (items []Item) {
	for key, s := range overlay {
		if !s.Deleted && wants(key, &s) {
			items = append(items, Item{Key: key, Record: s.Record, ix: ix, object: s.Object})
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return items
}

// settled yields the live objects of the database whose keys begin with in, without those of an
// overlay.
func (ix *Indexer) settled(
	in resource.Key, overlay map[resource.Key]NewState,
) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		it, err := ix.iteratorOf(spaceRecord, in)
		if err != nil {
			yield(Item{}, err)
			return
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			key := resource.Key(it.Key()[len(prefix(spaceRecord, 0)):])
			if _, isOver := overlay[key]; isOver {
				continue
			}
			rec, err := parseRecord(it.Value())
			if err == nil && rec.Deleted {
				continue
			}
			if !yield(Item{Key: key, Record: rec, ix: ix}, err) || err != nil {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(Item{}, fmt.Errorf("state database: %w", err))
		}
	}
}

// merge yields objects of both in order of their keys, until an error. No object is in both.
func merge(unsettled []Item, settled iter.Seq2[Item, error]) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for item, err := range settled {
			for err == nil && len(unsettled) > 0 && unsettled[0].Key < item.Key {
				if !yield(unsettled[0], nil) {
					return
				}
				unsettled = unsettled[1:]
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
		for _, item := range unsettled {
			if !yield(item, nil) {
				return
			}
		}
	}
}

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
