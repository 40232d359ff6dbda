package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// informers has the informers that run, and the status of those whose resource has gone.
type informers struct {
	mu sync.Mutex // guards all below; held for a few map operations only
	// list is replaced and never changed, so that a reader may go through it.
	list []*informer.Informer
	// gone has the removed informers whose resource the API server does not serve any more, by
	// name. The informer itself is released: it holds memory.
	gone map[string]removedInformer
	// unclean: an informer ended before it found out what an earlier run has sent.
	unclean bool
}

// removedInformer is the last status of an informer whose resource has gone.
type removedInformer struct {
	name     string
	notReady string
	status   informer.Status
}

// all returns the informers that run, those that drain among them. It must not be changed.
func (i *informers) all() []*informer.Informer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.list
}

// removed returns the informers whose resource has gone, by name.
func (i *informers) removed() []removedInformer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.SortedFunc(maps.Values(i.gone),
		func(a, b removedInformer) int { return strings.Compare(a.name, b.name) })
}

func (i *informers) add(u *informer.Informer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = append(slices.Clone(i.list), u)
	delete(i.gone, u.Name())
}

// remove takes out an informer that has ended.
func (i *informers) remove(u *informer.Informer, why informer.DrainReason) {
	isClean, left := u.IsClean(), removedInformer{u.Name(), u.NotReady(false), u.Status()}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = slices.DeleteFunc(slices.Clone(i.list),
		func(other *informer.Informer) bool { return other == u })
	// One that has changed has a successor that finds out, or setUnclean is called.
	i.unclean = i.unclean || !isClean && why != informer.Changed
	if why == informer.Gone {
		i.gone[u.Name()] = left
	}
}

// setUnclean records that an informer without a successor may have sent unknown events.
func (i *informers) setUnclean() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unclean = true
}

// keepInformers forgets the removed informers of all other informer sections.
func (i *informers) keepInformers(names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.gone, func(_ string, r removedInformer) bool {
		return !slices.Contains(names, r.status.Informer)
	})
}

// isClean reports whether every informer knows what was sent.
func (i *informers) isClean() bool {
	i.mu.Lock()
	list, unclean := i.list, i.unclean
	i.mu.Unlock()
	return !unclean && !slices.ContainsFunc(list,
		func(u *informer.Informer) bool { return !u.IsClean() })
}

// quietFor is for how long no update may have left a stale body on disk before bodies are
// refreshed.
const quietFor = 10 * time.Second

// bodyRefresh refreshes the stale bodies of all informers whenever there is no flood of updates.
type bodyRefresh struct {
	left      func() int64 // how many bodies updates have left stale; it only grows
	informers func() []*informer.Informer
	stateErr  func() error // nothing is refreshed while the state can't be written
}

// run works until ctx ends.
func (b *bodyRefresh) run(ctx context.Context) error {
	tick := time.NewTicker(quietFor / 2)
	defer tick.Stop()
	left, since := b.left(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := b.left(); now != left {
			left, since = now, time.Now()
		}
		if time.Since(since) < quietFor || b.stateErr() != nil {
			continue
		}
		for _, u := range b.informers() {
			u.RefreshBodies(func() bool { return b.left() == left })
		}
	}
}

// IndexedObjects are what an index has of a value, in all informers.
type IndexedObjects struct {
	Objects []informer.IndexedObject `json:"objects,omitempty"`
	// Values of the index, where none was asked for.
	Values []string `json:"values,omitempty"`
	// Incomplete are the informers whose index is being built, so that objects may be missing.
	Incomplete []string `json:"incomplete,omitempty"`
}

// Indexed returns the newest states of the objects that have a value of an index, or for "" the
// values that there are. It returns store.ErrNoIndex where no informer has such an index.
func (b *Bridge) Indexed(index, value string) (found IndexedObjects, err error) {
	isKnown := false
	for _, u := range b.informers.all() {
		var objects []informer.IndexedObject
		var values []string
		if value == "" {
			values, err = u.Objects.IndexValues(index)
		} else {
			objects, err = u.Objects.ByIndex(index, value)
		}
		switch {
		case errors.Is(err, store.ErrNoIndex):
			continue
		case errors.Is(err, store.ErrIndexIncomplete):
			found.Incomplete = append(found.Incomplete, u.Name())
		case err != nil:
			return found, fmt.Errorf("informer %s: %w", u.Name(), err)
		}
		isKnown = true
		found.Objects, found.Values = append(found.Objects, objects...), append(found.Values, values...)
	}
	if !isKnown {
		return found, fmt.Errorf("index %q: %w", index, store.ErrNoIndex)
	}
	slices.Sort(found.Values)
	found.Values = slices.Compact(found.Values)
	return found, nil
}

// OwnerUIDs returns the uid of an object, and those of all that it owns by owner references, and of
// what that owns: the values of the index of owners that lead to what belongs to it.
// store.ErrIndexIncomplete: some may be missing.
func (b *Bridge) OwnerUIDs(uid string) ([]string, error) {
	uids, seen := []string{uid}, map[string]bool{uid: true}
	for i := 0; i < len(uids); i++ {
		for _, u := range b.informers.all() {
			owned, err := u.Objects.UIDsOwnedBy(uids[i])
			if err != nil {
				return nil, fmt.Errorf("informer %s: index owner: %w", u.Name(), err)
			}
			for _, uid := range owned {
				if !seen[uid] {
					seen[uid], uids = true, append(uids, uid)
				}
			}
		}
	}
	return uids, nil
}

// ErrNotWatched is returned by Object for a resource that no informer has.
var ErrNotWatched = errors.New("no informer watches")

// Object returns the last settled state of an object from each informer that knows it. of is the
// resource as the status has it ("deployments.apps").
func (b *Bridge) Object(of, namespace, name string) ([]informer.ObjectState, error) {
	var states []informer.ObjectState
	watched := false
	for _, u := range b.informers.all() {
		c := u.Config()
		if c.Type.String() != of || c.Namespace != "" && c.Namespace != namespace {
			continue
		}
		watched = true
		state, found, err := u.Objects.Get(resource.MakeKey(namespace, name))
		if err != nil && !found {
			return nil, fmt.Errorf("informer %s: %w", u.Name(), err)
		}
		if found {
			states = append(states, state)
		}
	}
	if !watched {
		return nil, fmt.Errorf("%w %q in namespace %q", ErrNotWatched, of, namespace)
	}
	return states, nil
}

// maxOwners bounds a chain.
const maxOwners = 8

// owners returns the chain from an object to its top controller, as far as informers or the
// ownerCache have the owners. Nothing keeps objects from owning each other: the chain ends before
// an object that it has already. One that is longer than maxOwners ends with resource.MoreOwners.
// It may be called concurrently.
func (b *Bridge) owners(obj *resource.Object) []resource.Owner {
	var chain []resource.Owner
	for owner, ok := controllerOf(&obj.Meta); ok; owner, ok = b.above(owner, obj.Namespace) {
		isKnown := func(o resource.Owner) bool { return o.UID == owner.UID }
		switch {
		case owner.UID == obj.UID || slices.ContainsFunc(chain, isKnown):
			return chain
		case len(chain) == maxOwners:
			return append(chain, resource.MoreOwners)
		}
		chain = append(chain, owner)
	}
	return chain
}

// above returns the controller of an owner: as it is known, or, once the owner is gone, as it was.
func (b *Bridge) above(owner resource.Owner, namespace string) (resource.Owner, bool) {
	meta := b.known(owner, namespace)
	if meta == nil {
		return b.ownerCache.get(namespace, owner.UID)
	}
	controller, ok := controllerOf(meta)
	if ok {
		b.ownerCache.put(meta.Namespace, owner.UID, controller)
	} else {
		b.ownerCache.remove(meta.Namespace, owner.UID)
	}
	return controller, ok
}

// known returns the metadata of an owner, nil when no informer has it.
func (b *Bridge) known(o resource.Owner, namespace string) *resource.Meta {
	for _, u := range b.informers.all() {
		if meta := u.Objects.Owner(o, namespace); meta != nil {
			return meta
		}
	}
	return nil
}

// ownerCache remembers who controls an owner: the pods of a deleted Deployment may go after their
// ReplicaSet, whose controller is the Deployment. It is in memory and bounded. Owners that it has
// forgotten, or that only an earlier run has seen, are left out of events.
type ownerCache struct {
	mu      sync.Mutex                  // guards all below; held for a few map operations
	enabled bool                        // some informer adds the owners of its objects
	recent  map[ownerKey]resource.Owner // the controller of an owner
	older   map[ownerKey]resource.Owner // what recent was before it was full
}

// maxOwnerCache bounds each of the two maps, at some 300 bytes an entry.
const maxOwnerCache = 8192

// ownerKey identifies an owner. An object's owners are in its namespace, or in none. A reference
// may name any uid, even one of another tenant that was seen in the stream, so the uid alone is not
// enough.
type ownerKey struct{ namespace, uid string }

// controllerOf returns the owner that manages an object. Its strings do not share the object's
// memory.
func controllerOf(meta *resource.Meta) (resource.Owner, bool) {
	for _, o := range meta.Owners {
		if o.Controller {
			return resource.Owner{
				APIVersion: strings.Clone(o.APIVersion), Kind: strings.Clone(o.Kind),
				Name: strings.Clone(o.Name), UID: strings.Clone(o.UID), Controller: true,
			}, true
		}
	}
	return resource.Owner{}, false
}

// longestOwner bounds the size of one remembered controller: an owner reference may hold a
// megabyte.
const longestOwner = 1024

func tooLong(o resource.Owner) bool {
	return len(o.APIVersion)+len(o.Kind)+len(o.Name)+len(o.UID) > longestOwner
}

// enable makes deleted remember.
func (c *ownerCache) enable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enabled = true
}

// deleted remembers the controller of a deleted object. Call it before the object is forgotten.
func (c *ownerCache) deleted(obj *resource.Object) {
	c.mu.Lock()
	enabled := c.enabled
	c.mu.Unlock()
	if !enabled {
		return
	}
	if controller, ok := controllerOf(&obj.Meta); ok {
		c.put(strings.Clone(obj.Namespace), strings.Clone(obj.UID), controller)
	}
}

// put remembers the controller of an owner.
func (c *ownerCache) put(namespace, uid string, controller resource.Owner) {
	if tooLong(controller) {
		return
	}
	key := ownerKey{namespace, uid}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recent[key] == controller {
		return
	}
	if c.recent == nil || len(c.recent) >= maxOwnerCache {
		c.recent, c.older = map[ownerKey]resource.Owner{}, c.recent
	}
	c.recent[key] = controller
}

// remove forgets an owner that has no controller.
func (c *ownerCache) remove(namespace, uid string) {
	key := ownerKey{namespace, uid}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recent, key)
	delete(c.older, key)
}

// get returns the controller that an owner had: an owner in the namespace of the object that refers
// to it, or one of the cluster.
func (c *ownerCache) get(namespace, uid string) (resource.Owner, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range []ownerKey{{namespace, uid}, {"", uid}} {
		for _, entries := range []map[ownerKey]resource.Owner{c.recent, c.older} {
			if controller, ok := entries[key]; ok {
				return controller, true
			}
		}
	}
	return resource.Owner{}, false
}
