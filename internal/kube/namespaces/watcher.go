// Package namespaces watches the cluster's Namespaces once, for all informers that select some by
// their labels.
//
// In: the Namespaces, by a reflector of its own. Out: a Selection for each label selector. It says
// which namespaces are selected, since which version, and reports when that changes.
//
// Promised: a Selection is complete. It is unknown until the first list has ended. After that it is
// what the last list and the watch behind it say. Nothing is on disk: each start lists.
//
// The bridge starts Run, which waits until the first Select, and stops it by its context.
package namespaces

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// Type is the resource that a Watcher watches.
var Type = resource.Type{Version: "v1", Resource: "namespaces", Kind: "Namespace"}

// Config of a Watcher. Watchdog, Identify, Log and Registerer are as in reflector.Config.
type Config struct {
	Client     *reflector.Client
	Watchdog   time.Duration
	Identify   func(ctx context.Context) error
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Watcher watches the Namespaces for all Selections. It is the Store of its reflector.
type Watcher struct {
	cfg    Config
	needed chan struct{} // closed by the first Select
	once   sync.Once

	mu         sync.Mutex // guards all below; held for map operations only
	reflector  *reflector.Reflector
	selections map[string]*Selection // by selector
	known      map[string]namespace  // of the last list, and the watch since
	synced     bool                  // known is complete
	seen       resource.Version      // of the last event, bookmark or list
	listed     map[string]namespace  // of the list that is being read; else nil
}

// namespace is what the Watcher keeps of one. Its strings share no memory with the object.
type namespace struct {
	labels  labels.Set
	version resource.Version
}

// New makes a Watcher and starts nothing.
func New(cfg Config) *Watcher {
	return &Watcher{
		cfg: cfg, needed: make(chan struct{}),
		selections: map[string]*Selection{}, known: map[string]namespace{},
	}
}

// Run watches from the first Select until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	select {
	case <-w.needed:
	case <-ctx.Done():
		return nil
	}
	r, err := reflector.New(reflector.Config{
		Client: w.cfg.Client, Store: w, Type: Type, Snapshot: true,
		Limits:   reflector.Limits{Watchdog: w.cfg.Watchdog},
		Identify: w.cfg.Identify, Log: w.cfg.Log, Registerer: w.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.reflector = r
	w.mu.Unlock()
	return r.Run(ctx)
}

// Select returns the selection of a label selector. All who ask for one selector share one.
func (w *Watcher) Select(selector string) (*Selection, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	defer w.once.Do(func() { close(w.needed) })
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.selections[selector]
	if s == nil {
		s = &Selection{selector: parsed, watcher: w, changed: make(chan struct{})}
		w.selections[selector] = s
		if w.synced {
			s.set, s.lastChange = s.selectLocked(w.known), w.seen
		}
	}
	return s, nil
}

// NotReady returns why the selections are unknown or may be stale; "" when they are in sync.
func (w *Watcher) NotReady() string {
	w.mu.Lock()
	r, synced := w.reflector, w.synced
	w.mu.Unlock()
	if r != nil {
		if err := r.Status().LastError; err != "" {
			return err
		}
	}
	if !synced {
		return "not in sync yet"
	}
	return ""
}

// Add implements reflector.Store.
func (w *Watcher) Add(_ context.Context, obj *resource.Object) error { return w.put(obj) }

// Update implements reflector.Store.
func (w *Watcher) Update(_ context.Context, obj *resource.Object) error { return w.put(obj) }

// Delete implements reflector.Store. A deletion may come before the end of a list, also of the
// first one, which no selection has seen yet.
func (w *Watcher) Delete(_ context.Context, obj *resource.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listed, obj.Name)
	delete(w.known, obj.Name)
	w.seen = resource.Version(strings.Clone(string(obj.Version)))
	for _, s := range w.selections {
		s.deleteLocked(obj.Name, w.seen)
	}
	return nil
}

// Bookmark implements reflector.Store.
func (w *Watcher) Bookmark(_ context.Context, version resource.Version) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = version
	return nil
}

// BeginReplace implements reflector.Store.
func (w *Watcher) BeginReplace(context.Context, resource.Relist) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed = map[string]namespace{}
	return nil
}

// Replace implements reflector.Store.
func (w *Watcher) Replace(_ context.Context, obj *resource.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed[strings.Clone(obj.Name)] = namespaceOf(obj)
	return nil
}

// Skip implements reflector.Store. A namespace that can't be understood stays what it was. Where
// nobody knows which one it is, all stay that are not listed.
func (w *Watcher) Skip(_ context.Context, of resource.Identity) error {
	_, name := of.Key.Split()
	w.mu.Lock()
	defer w.mu.Unlock()
	for known, ns := range w.known {
		if _, isListed := w.listed[known]; !isListed && (known == name || of.Key == "") {
			w.listed[known] = ns
		}
	}
	return nil
}

// Unselected implements reflector.Store: of a namespace that can't be understood.
func (w *Watcher) Unselected(ctx context.Context, obj *resource.Object, gone bool) error {
	if gone {
		return w.Delete(ctx, obj)
	}
	return nil // what was known of it is of versions that are gone
}

// Progress implements reflector.Store: all objects are wanted.
func (w *Watcher) Progress(context.Context, resource.Version) error { return nil }

// Quarantine implements reflector.Store: the reflector has logged it.
func (w *Watcher) Quarantine(context.Context, *resource.Unreadable) error { return nil }

// Flush implements reflector.Store: nothing is put off.
func (w *Watcher) Flush() {}

// EndReplace implements reflector.Store: what was listed is what there is.
func (w *Watcher) EndReplace(_ context.Context, version resource.Version) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.synced, w.known, w.listed, w.seen = true, w.listed, nil, version
	for _, s := range w.selections {
		s.lastChange = version
		s.publishLocked(s.selectLocked(w.known))
	}
	return nil
}

func (w *Watcher) put(obj *resource.Object) error {
	name, ns := strings.Clone(obj.Name), namespaceOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[name], w.seen = ns, ns.version
	for _, s := range w.selections {
		s.putLocked(name, ns)
	}
	return nil
}

func namespaceOf(obj *resource.Object) namespace {
	ns := namespace{version: resource.Version(strings.Clone(string(obj.Version)))}
	// The API server has checked labels. What does not decode is selected by no label.
	_ = json.Unmarshal(resource.Member(resource.Member(obj.Raw, "metadata"), "labels"), &ns.labels)
	return ns
}

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
