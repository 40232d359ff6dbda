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

// informers has the pipelines that run, and what is left of those whose resource has gone.
type informers struct {
	mu sync.Mutex // guards all below; held for a few map operations only
	// list is replaced and never changed, so that a reader may go through it.
	list []*informer.Informer
	// gone has the retired pipelines: those whose resource the API server does not serve any more,
	// by name. The pipeline itself is released: it holds memory.
	gone map[string]removedInformer
	// unclean: a pipeline ended before it found out what a run before has sent.
	unclean bool
}

// removedInformer is what is left of a pipeline whose resource has gone.
type removedInformer struct {
	name     string
	notReady string
	status   informer.Status
}

// all are the pipelines that run, those that drain among them. It must not be changed.
func (p *informers) all() []*informer.Informer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list
}

// removed are the pipelines whose resource has gone, by name.
func (p *informers) removed() []removedInformer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.gone),
		func(a, b removedInformer) int { return strings.Compare(a.name, b.name) })
}

func (p *informers) add(u *informer.Informer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(slices.Clone(p.list), u)
	delete(p.gone, u.Name())
}

// remove takes out a pipeline that has ended.
func (p *informers) remove(u *informer.Informer, why informer.DrainReason) {
	isClean, left := u.IsClean(), removedInformer{u.Name(), u.NotReady(false), u.Status()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(slices.Clone(p.list),
		func(other *informer.Informer) bool { return other == u })
	// One that has changed has a successor that finds out, or setUnclean is called.
	p.unclean = p.unclean || !isClean && why != informer.Changed
	if why == informer.Gone {
		p.gone[u.Name()] = left
	}
}

// setUnclean says that a pipeline without a successor may have sent what is not known.
func (p *informers) setUnclean() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unclean = true
}

// keepInformers forgets the retired pipelines of all other informers.
func (p *informers) keepInformers(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.gone, func(_ string, r removedInformer) bool {
		return !slices.Contains(names, r.status.Informer)
	})
}

// isClean reports whether every pipeline knows what was sent.
func (p *informers) isClean() bool {
	p.mu.Lock()
	list, unclean := p.list, p.unclean
	p.mu.Unlock()
	return !unclean && !slices.ContainsFunc(list,
		func(u *informer.Informer) bool { return !u.IsClean() })
}

// quietFor is how long no update may have left a stale body on disk before bodies are refreshed.
const quietFor = 10 * time.Second

// bodyRefresh refreshes the stale bodies of all pipelines whenever there is no flood of updates.
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

// Object returns the last settled state of an object from each informer that knows it; none when no
// informer does. Its resource is given as the status has it ("deployments.apps").
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
