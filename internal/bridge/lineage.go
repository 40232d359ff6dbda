package bridge

import (
	"strings"
	"sync"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// maxLineage bounds how many owners that live are remembered, at some 300 bytes each.
const maxLineage = 8192

// lineage remembers who controlled an owner that is gone: the pods of a deployment that is deleted may go after their ReplicaSet, also when the
// bridge is away between the two. What is gone is remembered on disk; who controls what lives, in memory as well, since it may stop
// being followed. It is a help, and not part of what is settled.
type lineage struct {
	mu    sync.Mutex                  // guards all below; held for a few map operations only
	asked bool                        // some unit tells the owners of its objects
	above map[ownerKey]resource.Owner // by the owner below
	gone  map[ownerKey]store.Ancestor // by the object that is gone: the newest store.MaxAncestors
	keys  []ownerKey                  // of gone, by number modulo that
	next  uint64                      // number
}

// ownerKey names an owner. An object's owners are in its namespace, or in none. A reference may name
// any uid, also one of another tenant that was seen in the stream, so the uid alone says too little.
type ownerKey struct{ namespace, uid string }

// longestOwner bounds what is remembered of one controller: an owner reference may hold a megabyte.
const longestOwner = 1024

func tooLong(o resource.Owner) bool {
	return len(o.APIVersion)+len(o.Kind)+len(o.Name)+len(o.UID) > longestOwner
}

// load begins to remember, with what runs before have left.
func (l *lineage) load(db *store.DB) error {
	l.mu.Lock()
	asked := l.asked
	l.mu.Unlock()
	if asked {
		return nil
	}
	list, err := db.Ancestors()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked, l.gone, l.keys = true, map[ownerKey]store.Ancestor{}, make([]ownerKey, store.MaxAncestors)
	for _, a := range list {
		l.keepLocked(a)
	}
	return nil
}

func (l *lineage) keepLocked(a store.Ancestor) {
	place := &l.keys[a.Number%store.MaxAncestors]
	if before, there := l.gone[*place]; there && before.Number != a.Number && before.Number%store.MaxAncestors == a.Number%store.MaxAncestors {
		delete(l.gone, *place)
	}
	key := ownerKey{a.Namespace, a.UID}
	*place = key
	if last := l.gone[key]; last.UID == "" || last.Number < a.Number {
		l.gone[key] = a
	}
	l.next = max(l.next, a.Number+1)
}

// died notes who controlled an object that is gone, and gives what has to be written for that, nil for nothing. It comes before the object is
// forgotten, and is written no later than that.
func (l *lineage) died(obj *resource.Object) (write func(*store.Batch)) {
	controller, ok := controllerOf(&obj.Meta)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok || !l.asked || tooLong(controller) || l.gone[ownerKey{obj.Namespace, obj.UID}].Controller == controller {
		return nil
	}
	a := store.Ancestor{
		Number: l.next, Namespace: strings.Clone(obj.Namespace), UID: strings.Clone(obj.UID),
		Controller: controller,
	}
	l.keepLocked(a)
	return func(b *store.Batch) { b.SetAncestor(a) }
}

// note keeps the controller of an owner that lives, or that it has none.
func (l *lineage) note(namespace, uid string, controller resource.Owner, has bool) {
	key := ownerKey{namespace, uid}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !has || tooLong(controller):
		delete(l.above, key)
	case l.above[key] == controller:
	default:
		if l.above == nil || len(l.above) >= maxLineage {
			l.above = map[ownerKey]resource.Owner{}
		}
		l.above[key] = controller
	}
}

// of is the controller that an owner had: one in the namespace of the object that refers to it, or one
// of the cluster.
func (l *lineage) of(namespace, uid string) (resource.Owner, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range []ownerKey{{namespace, uid}, {"", uid}} {
		if a, ok := l.gone[key]; ok {
			return a.Controller, true
		}
		if controller, ok := l.above[key]; ok {
			return controller, true
		}
	}
	return resource.Owner{}, false
}
