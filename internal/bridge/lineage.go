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
	mu    sync.Mutex                // guards all below; held for a few map operations only
	asked bool                      // some unit tells the owners of its objects
	above map[string]resource.Owner // by uid of the owner below
	gone  map[string]store.Ancestor // by uid: the newest store.MaxAncestors
	uids  []string                  // of gone, by number modulo that
	next  uint64                    // number
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
	l.asked, l.gone, l.uids = true, map[string]store.Ancestor{}, make([]string, store.MaxAncestors)
	for _, a := range list {
		l.keepLocked(a)
	}
	return nil
}

func (l *lineage) keepLocked(a store.Ancestor) {
	place := &l.uids[a.Number%store.MaxAncestors]
	if before, there := l.gone[*place]; there && before.Number != a.Number && before.Number%store.MaxAncestors == a.Number%store.MaxAncestors {
		delete(l.gone, *place)
	}
	*place = a.UID
	if last := l.gone[a.UID]; last.UID == "" || last.Number < a.Number {
		l.gone[a.UID] = a
	}
	l.next = max(l.next, a.Number+1)
}

// died notes who controlled an object that is gone, and gives what has to be written for that, nil for nothing. It comes before the object is
// forgotten, and is written no later than that.
func (l *lineage) died(obj *resource.Object) (write func(*store.Batch)) {
	controller, ok := controllerOf(&obj.Meta)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok || !l.asked || l.gone[obj.UID].Controller == controller {
		return nil
	}
	a := store.Ancestor{Number: l.next, UID: strings.Clone(obj.UID), Controller: controller}
	l.keepLocked(a)
	return func(b *store.Batch) { b.SetAncestor(a) }
}

// note keeps the controller of an owner that lives, or that it has none.
func (l *lineage) note(uid string, controller resource.Owner, has bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !has:
		delete(l.above, uid)
	case l.above[uid] == controller:
	default:
		if l.above == nil || len(l.above) >= maxLineage {
			l.above = map[string]resource.Owner{}
		}
		l.above[uid] = controller
	}
}

// of is the controller that an owner had.
func (l *lineage) of(uid string) (resource.Owner, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.gone[uid]; ok {
		return a.Controller, true
	}
	controller, ok := l.above[uid]
	return controller, ok
}
