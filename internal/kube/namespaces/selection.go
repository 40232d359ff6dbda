package namespaces

import (
	"maps"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// Selection is what one label selector selects. It implements reflector.Namespaces.
type Selection struct {
	selector labels.Selector
	watcher  *Watcher

	// Guarded by watcher.mu.
	// replaced, never changed; nil until the first list has ended
	set        *reflector.NamespaceSet
	lastChange resource.Version // when a namespace last came in or left, or of the last list
	changed    chan struct{}
}

// Current implements reflector.Namespaces.
func (s *Selection) Current() (*reflector.NamespaceSet, <-chan struct{}) {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	return s.set, s.changed
}

// LastChange returns the version in which a namespace last came in or left.
func (s *Selection) LastChange() resource.Version {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	return s.lastChange
}

// AsOf returns the selection, and the version of the Namespaces up to which it is complete.
func (s *Selection) AsOf() (*reflector.NamespaceSet, resource.Version) {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	return s.set, s.watcher.seen
}

// putLocked takes in the state of a namespace. Most updates of namespaces change nothing here.
func (s *Selection) putLocked(name string, ns namespace) {
	if s.set == nil {
		return // the end of the first list selects among all
	}
	_, was := s.set.Selected[name]
	is := s.selector.Matches(ns.labels)
	if s.set.Exists[name] && was == is {
		return
	}
	set := s.copyLocked()
	set.Exists[name] = true
	switch {
	case was && !is:
		delete(set.Selected, name)
	case is && !was:
		set.Selected[name] = ns.version
	}
	if is != was {
		s.lastChange = ns.version
	}
	s.publishLocked(set)
}

// deleteLocked takes a namespace out that was deleted in a version.
func (s *Selection) deleteLocked(name string, version resource.Version) {
	if s.set == nil || !s.set.Exists[name] {
		return
	}
	if _, was := s.set.Selected[name]; was {
		s.lastChange = version
	}
	set := s.copyLocked()
	delete(set.Selected, name)
	delete(set.Exists, name)
	s.publishLocked(set)
}

// selectLocked selects among all namespaces. A namespace that was selected before keeps the version
// in which it came in.
func (s *Selection) selectLocked(known map[string]namespace) *reflector.NamespaceSet {
	set := &reflector.NamespaceSet{
		Selected: map[string]resource.Version{}, Exists: map[string]bool{},
	}
	for name, ns := range known {
		set.Exists[name] = true
		if !s.selector.Matches(ns.labels) {
			continue
		}
		set.Selected[name] = ns.version
		if s.set != nil && s.set.Selected[name] != "" {
			set.Selected[name] = s.set.Selected[name]
		}
	}
	return set
}

func (s *Selection) copyLocked() *reflector.NamespaceSet {
	return &reflector.NamespaceSet{
		Selected: maps.Clone(s.set.Selected), Exists: maps.Clone(s.set.Exists),
	}
}

// publishLocked replaces the selection and wakes who waits for a change.
func (s *Selection) publishLocked(set *reflector.NamespaceSet) {
	s.set = set
	close(s.changed)
	s.changed = make(chan struct{})
}
