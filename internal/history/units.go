package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

type unitName struct{ source, informer, resource, group string }

func nameOf(u *record.Unit) unitName {
	return unitName{u.Source, u.Informer, u.Resource, u.Group}
}

// units are all that are known.
type units struct {
	mu       sync.RWMutex // guards what follows
	byName   map[unitName]*record.Unit
	byNumber map[uint32]*record.Unit
	sources  map[string]uint32
	next     uint32 // number of the next unit
}

func newUnits() units {
	return units{
		byName: map[unitName]*record.Unit{}, byNumber: map[uint32]*record.Unit{},
		sources: map[string]uint32{}, next: 1,
	}
}

func (us *units) add(u *record.Unit) {
	us.byName[nameOf(u)], us.byNumber[u.Number] = u, u
	us.sources[u.Source] = u.SourceNumber
	us.next = max(us.next, u.Number+1)
}

// of is the unit of an event; isNew is set for one that has to be stored.
func (us *units) of(e *event.Event) (u *record.Unit, isNew bool) {
	name := unitName{e.Source, e.Informer, e.Resource, e.Group}
	us.mu.RLock()
	u = us.byName[name]
	us.mu.RUnlock()
	if u != nil {
		return u, false
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	source, known := us.sources[e.Source]
	if !known {
		source = uint32(len(us.sources)) + 1
	}
	u = &record.Unit{
		Number: us.next, SourceNumber: source, Source: e.Source,
		Informer: e.Informer, Resource: e.Resource, Group: e.Group, Kind: e.Kind,
	}
	us.add(u)
	return u, true
}

func (us *units) numbered(number uint32) *record.Unit {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return us.byNumber[number]
}

func (us *units) all() []*record.Unit {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return slices.SortedFunc(maps.Values(us.byNumber),
		func(a, b *record.Unit) int { return int(a.Number) - int(b.Number) })
}

// load reads the units that are stored.
func (us *units) load(db *pebble.DB) error {
	us.mu.Lock()
	defer us.mu.Unlock()
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keys.SpaceUnit},
		UpperBound: []byte{keys.SpaceUnit + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		u := new(record.Unit)
		if err := json.Unmarshal(it.Value(), u); err != nil || u.Number == 0 {
			return fmt.Errorf("the entry of a unit can't be read: %w", record.ErrUnreadable)
		}
		us.add(u)
	}
	return it.Error()
}
