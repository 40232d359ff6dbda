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
