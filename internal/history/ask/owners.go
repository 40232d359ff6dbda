package ask

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// owners finds the controllers of objects, as the last versions of these name them.
type owners struct {
	history *query.Questions
	recent  *recentOwners
	units   map[string]*record.Unit // by kind and group; nil for one without a history
}

// recentOwners are what owners found within the last minute: to look up 10,000 objects takes a
// second, and the page asks again with each click. An object that is created again under the name
// of another is looked up again at its first change. What it owns follows within the minute.
type recentOwners struct {
	mu    sync.Mutex
	began time.Time              // guarded by mu
	found map[query.Object]owner // guarded by mu
}

const (
	recentTime = time.Minute
	// recentMost bounds the memory: an entry takes about 200 bytes.
	recentMost = 100_000
)

func (r *recentOwners) get(o query.Object) (owner, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.began) > recentTime || len(r.found) > recentMost {
		r.began, r.found = time.Now(), map[query.Object]owner{}
	}
	found, isKnown := r.found[o]
	return found, isKnown
}

func (r *recentOwners) put(o query.Object, by owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[o] = by
}

// forget removes an object that was created at a time, where it may have been looked up before.
func (r *recentOwners) forget(o query.Object, created time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if created.After(r.began.Add(-recentTime)) {
		delete(r.found, o)
	}
}

// owner is the controller of an object; the zero owner is none.
type owner struct {
	kind, group, name string
}

// String returns "replicaset/web-1", or "" for none.
func (o owner) String() string {
	if o.name == "" {
		return ""
	}
	return o.kind + "/" + o.name
}

func newOwners(history *query.Questions, recent *recentOwners) *owners {
	return &owners{history, recent, map[string]*record.Unit{}}
}

// find returns the controller of an object: none also where the history has no metadata of it.
func (f *owners) find(o query.Object) (owner, error) {
	found, isKnown := f.recent.get(o)
	if isKnown {
		return found, nil
	}
	v, err := f.history.Objects.At(&o, query.Point{})
	if err != nil {
		return found, err
	}
	var references []struct {
		APIVersion, Kind, Name string
		Controller             bool
	}
	if v != nil {
		// What can't be decoded has no owner: it is shown.
		_ = json.Unmarshal(diff.Field(v.Event.Data, "metadata.ownerReferences"), &references)
	}
	for _, r := range references {
		if group, _, isGrouped := strings.Cut(r.APIVersion, "/"); r.Controller {
			if !isGrouped {
				group = ""
			}
			found = owner{strings.ToLower(r.Kind), group, r.Name}
		}
	}
	f.recent.put(o, found)
	return found, nil
}

// maxOwners bounds a chain of owners: a cluster may have a cycle.
const maxOwners = 8

// root returns the object at the end of the chain of owners of which the history has a resource:
// the object itself where it has no owner.
func (f *owners) root(o query.Object) (query.Object, error) {
	for range maxOwners {
		by, err := f.find(o)
		if err != nil || by.name == "" {
			return o, err
		}
		unit, err := f.unitOf(o.Unit, by)
		if err != nil || unit == nil {
			return o, err
		}
		o = query.Object{Unit: unit, Namespace: o.Namespace, Name: by.name}
	}
	return o, nil
}

// unitOf returns the unit of an owner, of the informer of the object where that reads the owner.
func (f *owners) unitOf(of *record.Unit, by owner) (*record.Unit, error) {
	key := of.Informer + " " + by.kind + " " + by.group
	found, isKnown := f.units[key]
	if isKnown {
		return found, nil
	}
	name := by.kind
	if by.group != "" {
		name += "." + by.group
	}
	units, err := f.history.Resources.Resolve(name, of.Cluster(), query.Point{})
	if err != nil && !errors.Is(err, query.ErrUnknownResource) &&
		!errors.Is(err, query.ErrSeveralResources) {
		return nil, err
	}
	for _, u := range units {
		if found == nil || u.Informer == of.Informer {
			found = u
		}
	}
	f.units[key] = found
	return found, nil
}
