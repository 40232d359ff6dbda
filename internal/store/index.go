package store

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

// index finds the keys of objects by a value.
type index struct {
	fn     IndexFunc
	byVal  map[string]map[resource.Key]struct{}
	values map[resource.Key][]string // what each object stands under now
}

func newIndex(fn IndexFunc) *index {
	return &index{
		fn: fn, byVal: map[string]map[resource.Key]struct{}{},
		values: map[resource.Key][]string{},
	}
}

// indexValues computes an object's values in all indexes, outside the lock.
func (ix *Indexer) indexValues(obj *resource.Object) map[string][]string {
	if len(ix.indexes) == 0 {
		return nil
	}
	values := make(map[string][]string, len(ix.indexes))
	for name, x := range ix.indexes {
		values[name] = cloneStrings(x.fn(obj))
	}
	return values
}

// cloneStrings copies the values out of the object's memory, which they would keep alive.
func cloneStrings(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = strings.Clone(s)
	}
	return out
}

// reindexLocked moves an object to its new values; none when it is gone.
func (ix *Indexer) reindexLocked(key resource.Key, values map[string][]string) {
	for name, x := range ix.indexes {
		x.put(key, values[name])
	}
}

func (x *index) put(key resource.Key, values []string) {
	before := x.values[key]
	if slices.Equal(before, values) {
		return
	}
	key = resource.Key(strings.Clone(string(key)))
	for _, v := range before {
		delete(x.byVal[v], key)
		if len(x.byVal[v]) == 0 {
			delete(x.byVal, v)
		}
	}
	for _, v := range values {
		if x.byVal[v] == nil {
			x.byVal[v] = map[resource.Key]struct{}{}
		}
		x.byVal[v][key] = struct{}{}
	}
	if len(values) == 0 {
		delete(x.values, key)
	} else {
		x.values[key] = values
	}
}

// buildIndexes reads all bodies, when there are index functions.
func (ix *Indexer) buildIndexes() error {
	if len(ix.indexes) == 0 {
		return nil
	}
	for item, err := range ix.All() {
		if err != nil {
			return err
		}
		obj, err := item.Object()
		if err != nil {
			return err
		}
		if obj == nil {
			continue
		}
		values := ix.indexValues(obj)
		ix.mu.Lock()
		ix.reindexLocked(item.Key, values)
		ix.mu.Unlock()
	}
	return nil
}

// IndexKeys are the keys of the objects that stand under value in the index, sorted. An index that
// is not registered has none.
func (ix *Indexer) IndexKeys(name, value string) []resource.Key {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	x := ix.indexes[name]
	if x == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(x.byVal[value]))
}

// IndexValues are all values under which something stands in the index, sorted.
func (ix *Indexer) IndexValues(name string) []string {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	x := ix.indexes[name]
	if x == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(x.byVal))
}

// ByIndex are the objects that stand under value in the index, in order of their keys. An object
// that goes while this reads is left out.
func (ix *Indexer) ByIndex(name, value string) ([]*resource.Object, error) {
	var objects []*resource.Object
	for _, key := range ix.IndexKeys(name, value) {
		obj, err := ix.Object(key)
		if err != nil {
			return nil, err
		}
		if obj != nil {
			objects = append(objects, obj)
		}
	}
	return objects, nil
}

// IndexByNamespace indexes namespaced objects by their namespace.
func IndexByNamespace(obj *resource.Object) []string {
	if obj.Namespace == "" {
		return nil
	}
	return []string{obj.Namespace}
}

// IndexByOwner indexes by the uids of the owners.
func IndexByOwner(obj *resource.Object) []string {
	var uids []string
	for _, o := range obj.Owners {
		uids = append(uids, o.UID)
	}
	return uids
}
