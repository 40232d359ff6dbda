package bridge

import (
	"sync"

	"github.com/kubebridge/bridge/internal/resource"
)

// maxLineage bounds how many owners are remembered, at some 300 bytes each.
const maxLineage = 8192

// lineage remembers who controlled an owner that is gone: the pods of a deployment that is deleted may go after their ReplicaSet. It is a help, and
// not part of the state: a restart forgets it.
type lineage struct {
	mu    sync.Mutex
	above map[string]resource.Owner // by uid of the owner below
}

// note keeps the controller of an owner, or that it has none.
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
	controller, ok := l.above[uid]
	return controller, ok
}
