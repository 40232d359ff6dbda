package store

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Index is an index function with its name, as in client-go's Indexers. The index lies on disk: the
// values of an object are committed with its record. So a start reads no objects, and memory does
// not grow with their number.
type Index struct {
	Name string
	// Definition is another one when Values returns something else: the index is then built again.
	Definition string
	// Values appends the values of an object to dst. It may be called concurrently.
	Values func(dst []string, obj *resource.Object) []string
}

// ByOwner indexes objects by the uids of all their owners.
func ByOwner() Index {
	return Index{Name: "owner", Definition: "1", Values: ownersOf}
}

func ownersOf(dst []string, obj *resource.Object) []string {
	for i := range obj.Owners {
		dst = append(dst, obj.Owners[i].UID)
	}
	return dst
}

// ByNode indexes pods by the node that they run on.
func ByNode() Index {
	return Index{Name: "node", Definition: "1", Values: nodeOf}
}

func nodeOf(dst []string, obj *resource.Object) []string {
	if obj.NodeName != "" {
		dst = append(dst, obj.NodeName)
	}
	return dst
}

// ByLabel indexes objects by the value of a label.
func ByLabel(key string) Index {
	return Index{
		Name: LabelIndex(key), Definition: "1",
		Values: func(dst []string, obj *resource.Object) []string {
			if value, exists := obj.Labels().Lookup(key); exists {
				dst = append(dst, value)
			}
			return dst
		},
	}
}

// LabelIndex returns the name of the index of a label.
func LabelIndex(key string) string { return "label:" + key }

var (
	// ErrNoIndex is returned for an index that does not exist.
	ErrNoIndex = errors.New("there is no such index")
	// ErrIndexIncomplete comes behind the results of an index that is being built.
	ErrIndexIncomplete = errors.New("the index is being built: it does not have all objects yet")
)

// AddIndexers adds indexes, before the first change. One that the database does not have, or has
// with another definition, is built by later commits from the stored bodies. What the database has
// of indexes that are not added is removed from it.
func (x *Indexes) AddIndexers(list ...Index) error {
	before, err := x.ix.savedIndexes()
	if err != nil {
		return err
	}
	set := &indexSet{
		Next: before.Next, Cursor: before.Cursor, Indexes: slices.Clone(x.set.Indexes),
	}
	for _, index := range list {
		if set.find(index.Name) != nil {
			return fmt.Errorf("indexer conflict: there are two indexes %q", index.Name)
		}
		set.add(index, before, x.ix.uncached != nil)
	}
	if err := x.ix.saveIndexes(before, set); err != nil {
		return err
	}
	x.ix.mu.Lock()
	defer x.ix.mu.Unlock()
	x.set = set
	return nil
}

// add adds an index as it was before, or a new one, which is complete where there are no objects.
func (s *indexSet) add(index Index, before *indexSet, isEmpty bool) {
	added := savedIndex{Name: index.Name, Definition: index.Definition, values: index.Values}
	if old := before.find(index.Name); old != nil && old.Definition == index.Definition {
		added.Number, added.Complete = old.Number, old.Complete
	} else {
		s.Next++
		added.Number, added.Complete = s.Next, isEmpty
		s.Cursor = ""
	}
	s.Indexes = append(s.Indexes, added)
}

// GetIndexers returns the names of the indexes.
func (x *Indexes) GetIndexers() []string {
	x.ix.mu.RLock()
	defer x.ix.mu.RUnlock()
	names := make([]string, len(x.set.Indexes))
	for i := range names {
		names[i] = x.set.Indexes[i].Name
	}
	return names
}

// Check returns ErrNoIndex or ErrIndexIncomplete where ByIndex would.
func (x *Indexes) Check(name string) error {
	x.ix.mu.RLock()
	defer x.ix.mu.RUnlock()
	switch index := x.set.find(name); {
	case index == nil:
		return ErrNoIndex
	case !index.Complete:
		return ErrIndexIncomplete
	}
	return nil
}

// ByIndex yields the live objects that have a value, in order of their keys: the newest state of
// each at the call. It reads no others. ErrIndexIncomplete is the last error, behind what it has.
func (x *Indexes) ByIndex(name, value string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		v, err := x.view(name)
		if err != nil {
			yield(Item{}, err)
			return
		}
		defer v.close()
		value := storedValue(value)
		for item, err := range merge(v.unsettled(value), v.settled(value)) {
			if !yield(item, err) || err != nil {
				return
			}
		}
		if !v.index.Complete {
			yield(Item{}, ErrIndexIncomplete)
		}
	}
}

// IndexKeys yields the keys of ByIndex.
func (x *Indexes) IndexKeys(name, value string) iter.Seq2[resource.Key, error] {
	return func(yield func(resource.Key, error) bool) {
		for item, err := range x.ByIndex(name, value) {
			if !yield(item.Key, err) {
				return
			}
		}
	}
}

// Index yields the live objects that share a value of an index with an object, each once.
func (x *Indexes) Index(name string, obj *resource.Object) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		x.ix.mu.RLock()
		index := x.set.find(name)
		x.ix.mu.RUnlock()
		if index == nil {
			yield(Item{}, fmt.Errorf("index %q: %w", name, ErrNoIndex))
			return
		}
		seen := map[resource.Key]bool{}
		var incomplete error
		for _, value := range index.values(nil, obj) {
			for item, err := range x.ByIndex(name, value) {
				switch {
				case errors.Is(err, ErrIndexIncomplete):
					incomplete = err
				case err == nil && seen[item.Key]:
				case !yield(item, err) || err != nil:
					return
				default:
					seen[item.Key] = true
				}
			}
		}
		if incomplete != nil {
			yield(Item{}, incomplete)
		}
	}
}

// ListIndexFuncValues yields the values that live objects have, each once, in no order.
// ErrIndexIncomplete is as in ByIndex.
func (x *Indexes) ListIndexFuncValues(name string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		v, err := x.view(name)
		if err != nil {
			yield("", err)
			return
		}
		defer v.close()
		unsettled := v.unsettledValues()
		for value, err := range v.settledValues() {
			delete(unsettled, value)
			if !yield(value, err) || err != nil {
				return
			}
		}
		for value := range unsettled {
			if !yield(value, nil) {
				return
			}
		}
		if !v.index.Complete {
			yield("", ErrIndexIncomplete)
		}
	}
}

// indexView is an index and what it is an index of, as of one moment.
type indexView struct {
	ix       *Indexer
	index    *savedIndex
	overlay  map[resource.Key]NewState
	snapshot *pebble.Snapshot
}

// view opens a view, which the caller closes.
func (x *Indexes) view(name string) (*indexView, error) {
	// The overlay first: what a commit moves from it to the database in between is then in both.
	x.ix.mu.RLock()
	index := x.set.find(name)
	overlay := maps.Clone(x.ix.overlay)
	x.ix.mu.RUnlock()
	if index == nil {
		return nil, fmt.Errorf("index %q: %w", name, ErrNoIndex)
	}
	return &indexView{x.ix, index, overlay, x.ix.db.pebble.NewSnapshot()}, nil
}

func (v *indexView) close() { _ = v.snapshot.Close() } // it only releases the snapshot

// unsettled returns the objects of the overlay that have a value, in order of their keys.
func (v *indexView) unsettled(value string) []Item {
	return v.ix.unsettled(v.overlay, func(_ resource.Key, s *NewState) bool {
		return slices.Contains(v.valuesOf(s), value)
	})
}

// unsettledValues returns the values of the overlay's objects.
func (v *indexView) unsettledValues() map[string]bool {
	all := map[string]bool{}
	for _, s := range v.overlay {
		for _, value := range v.valuesOf(&s) {
			all[value] = true
		}
	}
	return all
}

// valuesOf returns the stored form of the values that a state has.
func (v *indexView) valuesOf(s *NewState) []string {
	if s.Object == nil {
		return nil
	}
	values := v.index.values(nil, s.Object)
	for i := range values {
		values[i] = storedValue(values[i])
	}
	return values
}

// settled yields the objects of the database that have a value, in order of their keys, without
// those that the overlay has.
func (v *indexView) settled(value string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		begin := v.index.entryPrefix(v.ix.id, value)
		it, err := v.iterator(begin)
		if err != nil {
			yield(Item{}, err)
			return
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			key := resource.Key(it.Key()[len(begin):])
			if _, isOver := v.overlay[key]; isOver {
				continue
			}
			item := Item{Key: key, ix: v.ix}
			stored, err := getFrom(v.snapshot, objectKey(spaceRecord, v.ix.id, key))
			if err == nil {
				item.Record, err = parseRecord(stored)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(Item{}, statedb.Wrap(err))
		}
	}
}

// settledValues yields the values of the objects in the database, each once, without those that
// only objects of the overlay had.
func (v *indexView) settledValues() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		begin := v.index.prefix(v.ix.id)
		it, err := v.iterator(begin)
		if err != nil {
			yield("", err)
			return
		}
		defer it.Close()
		for ok := it.First(); ok; {
			value, key, err := splitEntry(it.Key()[len(begin):])
			if _, isOver := v.overlay[key]; isOver && err == nil {
				ok = it.Next()
				continue
			}
			if !yield(value, err) || err != nil {
				return
			}
			ok = it.SeekGE(after(v.index.entryPrefix(v.ix.id, value)))
		}
		if err := it.Error(); err != nil {
			yield("", statedb.Wrap(err))
		}
	}
}

// iterator over the keys that begin with begin.
func (v *indexView) iterator(begin []byte) (*pebble.Iterator, error) {
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: begin, UpperBound: after(begin)})
	return it, statedb.Wrap(err)
}
