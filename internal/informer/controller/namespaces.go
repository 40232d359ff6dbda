package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// scope is which namespaces are selected, as the stream has reported so far. A change of it is on
// disk before anything that follows from it may be sent. So a namespace that enters does so again
// after a crash, with the same ids. A namespace that leaves does so completely before it may enter
// again.
type scope struct {
	mu sync.Mutex // guards all below; held for a few map operations only
	// revision counts changes of states. A note about a state that was left since is not written.
	revision uint64
	names    map[string]namespacePosition
}

// namespaceMove is the revision in which a namespace came to its state, and whether the namespace
// is to be forgotten then, since it does not exist.
type namespaceMove struct {
	revision uint64
	gone     bool
}

// namespacePosition is the state of a namespace, and since which revision.
type namespacePosition struct {
	store.Namespace
	revision uint64
}

func newScope(saved map[string]store.Namespace) *scope {
	s := &scope{names: map[string]namespacePosition{}}
	for name, n := range saved {
		s.names[name] = namespacePosition{Namespace: n}
	}
	return s
}

// stateOf returns the state of an object's namespace.
func (s *scope) stateOf(key resource.Key) store.Namespace {
	name, _ := key.Split()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name].Namespace
}

func (s *scope) setLocked(name string, n store.Namespace) {
	s.revision++
	s.names[name] = namespacePosition{n, s.revision}
}

// enter begins to take a namespace in, and reports whether that is new, and whether the namespace
// was known before.
func (s *scope) enter(name string, at, asOf resource.Version) (news, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.names[name]
	switch {
	case was.State.Selected() && was.AsOf == asOf:
		return false, false
	case was.State.Selected():
		was.AsOf = asOf
		s.setLocked(name, was.Namespace)
		return true, false
	case known:
		s.setLocked(name, store.Namespace{State: resource.NamespaceEntering, Entered: at, AsOf: asOf})
	default:
		s.setLocked(name, store.Namespace{State: resource.NamespaceEntering, AsOf: asOf})
	}
	return true, known
}

// leave marks a namespace as leaving, and reports whether that is new.
func (s *scope) leave(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.names[name]
	if was.State == resource.NamespaceLeaving {
		return false
	}
	s.setLocked(name, store.Namespace{State: resource.NamespaceLeaving, Entered: was.Entered})
	return true
}

// adopt takes over a selection, and returns the namespaces that it changes. again is set when one
// of those that enter was known before.
func (s *scope) adopt(selected map[string]resource.Version) (news []string, again bool) {
	for name, at := range selected {
		isNew, wasIn := s.enter(name, at, "")
		if isNew {
			news = append(news, name)
		}
		again = again || wasIn
	}
	s.mu.Lock()
	others := maps.Clone(s.names)
	s.mu.Unlock()
	for name, was := range others {
		if _, wanted := selected[name]; !wanted && was.State.Selected() && s.leave(name) {
			news = append(news, name)
		}
	}
	return news, again
}

// arrived ends what a Relist has begun, and returns the revisions of its namespaces. version is
// that of the list, where it matters.
func (s *scope) arrived(why *resource.Relist, version resource.Version) map[string]namespaceMove {
	s.mu.Lock()
	defer s.mu.Unlock()
	revisions := map[string]namespaceMove{}
	for name, was := range s.names {
		if why.Partial() && name != why.Namespace {
			continue
		}
		switch {
		case was.State == resource.NamespaceEntering:
			s.setLocked(name, store.Namespace{
				State: resource.NamespaceIn, Entered: was.Entered,
				AsOf: version,
			})
		case why.Kind == resource.RelistSelection, why.Incomplete:
			// those that leave are reported by a Relist of their own
			continue
		case was.State == resource.NamespaceLeaving && why.Kind == resource.RelistDeleted:
			s.setLocked(name, store.Namespace{State: resource.NamespaceOut, Entered: was.Entered})
			revisions[name] = namespaceMove{s.revision, true}
			continue
		case was.State == resource.NamespaceLeaving:
			s.setLocked(name, store.Namespace{State: resource.NamespaceOut, Entered: was.Entered})
		default:
			continue
		}
		revisions[name] = namespaceMove{revision: s.revision}
	}
	return revisions
}

// write puts the states of namespaces into a commit, except for those that have changed since these
// revisions.
func (s *scope) write(b *store.Batch, ix *store.Indexer, revisions map[string]namespaceMove) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, at := range revisions {
		switch now, there := s.names[name]; {
		case at.gone && (!there || now.revision == at.revision):
			b.ForgetNamespace(ix, name)
			delete(s.names, name)
		case there && now.revision == at.revision:
			b.SetNamespace(ix, name, now.Namespace)
		}
	}
}

func (s *scope) revisionsOf(names []string) map[string]namespaceMove {
	s.mu.Lock()
	defer s.mu.Unlock()
	revisions := map[string]namespaceMove{}
	for _, name := range names {
		revisions[name] = namespaceMove{revision: s.names[name].revision}
	}
	return revisions
}

// rescope records what a Relist says about namespaces, and waits until that is on disk.
func (c *Controller) rescope(ctx context.Context, d *deltafifo.Delta) error {
	why := d.Relist
	var news []string
	again := false
	switch {
	case why.Leaves():
		c.scope.leave(why.Namespace)
		news = []string{why.Namespace}
	case why.Partial():
		_, again = c.scope.enter(why.Namespace, why.Entered, why.From)
		news = []string{why.Namespace}
	case why.Namespaces != nil:
		news, again = c.scope.adopt(why.Namespaces)
	}
	if again {
		// Deletes in flight would take the announcements of the same objects with them when they
		// are settled. And what is written below says no more that they are to come: a crash before
		// they are settled would forget them.
		if err := c.spool(ctx); err != nil {
			return err
		}
	}
	if len(news) == 0 {
		return nil
	}
	slices.Sort(news)
	revisions := c.scope.revisionsOf(news)
	c.env.Log.AtNextCommit(func(b *store.Batch) { c.scope.write(b, c.env.Indexer, revisions) })
	return c.persist(ctx, c.env.Log.Commit)
}

// rescoped makes a commit write that namespaces are in, or out, once everything appended so far is
// settled: else a crash would have to begin again with them.
func (c *Controller) rescoped(why *resource.Relist, version resource.Version) {
	if !why.Partial() {
		version = ""
	}
	revisions := c.scope.arrived(why, version)
	if len(revisions) > 0 {
		c.env.Log.AtCommit(func(b *store.Batch) { c.scope.write(b, c.env.Indexer, revisions) })
	}
}
