package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// namespaceType is what namespaces are.
var namespaceType = resource.Type{Version: "v1", Resource: "namespaces", Kind: "Namespace"}

// namespaces follows the cluster's namespaces for all units that select some. It is the Store of a reflector. Nothing of it is on disk: at
// each start namespaces are listed, and the units, which know what they have told, tell the difference.
type namespaces struct {
	bridge *Bridge
	needed chan struct{} // closed when the first unit needs it
	once   sync.Once

	mu        sync.Mutex // guards all below; held for map operations only
	reflector *reflector.Reflector
	views     map[string]*namespaceView // by selector
	known     map[string]namespace
	synced    bool                 // known is all there are
	seen      resource.Version     // of the last event, bookmark or list
	listed    map[string]namespace // of the list that is being read
}

// namespace is what is kept of one. Its strings share no object's memory.
type namespace struct {
	labels  labels.Set
	version resource.Version
}

// namespaceView is what one selector selects. It is a reflector.Namespaces.
type namespaceView struct {
	selector labels.Selector
	all      *namespaces

	// Guarded by namespaces.mu.
	set     *reflector.NamespaceSet // replaced, never changed; nil while nothing is known
	moved   resource.Version        // when the last namespace came in or left, or the list of all was made
	changed chan struct{}
}

func newNamespaces(b *Bridge) *namespaces {
	return &namespaces{bridge: b, needed: make(chan struct{}), views: map[string]*namespaceView{}, known: map[string]namespace{}}
}

// view is what a selector selects, from now on.
func (n *namespaces) view(text string) (*namespaceView, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v := n.views[text]
	if v == nil {
		v = &namespaceView{selector: selector, all: n, changed: make(chan struct{})}
		n.views[text] = v
		if n.synced {
			v.set, v.moved = v.chooseLocked(), n.seen
		}
	}
	n.once.Do(func() { close(n.needed) })
	return v, nil
}

// Current gives the selection.
func (v *namespaceView) Current() (*reflector.NamespaceSet, <-chan struct{}) {
	v.all.mu.Lock()
	defer v.all.mu.Unlock()
	return v.set, v.changed
}

// publishLocked makes a set the selection.
func (v *namespaceView) publishLocked(set *reflector.NamespaceSet) {
	v.set = set
	close(v.changed)
	v.changed = make(chan struct{})
}

// run follows the namespaces until ctx ends, from when a unit needs them.
func (n *namespaces) run(ctx context.Context) error {
	select {
	case <-n.needed:
	case <-ctx.Done():
		return nil
	}
	cfg := n.bridge.cfg
	r, err := reflector.New(reflector.Config{
		Client: cfg.Client, Store: n, Type: namespaceType, Snapshot: true, Watchdog: cfg.Watchdog, Identify: cfg.Identify,
		Log: n.bridge.log.With("informer", "namespaceSelector"), Registerer: labelled(cfg.Registerer, prometheus.Labels{
			"informer": "namespaceSelector", "resource": namespaceType.String(), "namespace": "",
		}),
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.reflector = r
	n.mu.Unlock()
	return r.Run(ctx)
}

// notReady says why it is not known which namespaces are selected; "" when it is, or nobody asks: a unit that did may have gone.
func (n *namespaces) notReady() string {
	selects := func(u *unit) bool { return u.cfg.NamespaceSelector != "" }
	if !slices.ContainsFunc(n.bridge.roster.all(), selects) {
		return ""
	}
	n.mu.Lock()
	r, synced := n.reflector, n.synced
	n.mu.Unlock()
	switch {
	case r != nil && r.Status().LastError != "":
		return r.Status().LastError
	case !synced:
		return "not in step yet"
	}
	return ""
}

// Add takes a namespace in.
func (n *namespaces) Add(_ context.Context, obj *resource.Object) error { return n.put(obj) }

// Update looks again at a namespace.
func (n *namespaces) Update(_ context.Context, obj *resource.Object) error { return n.put(obj) }

// Delete takes a namespace out.
func (n *namespaces) Delete(_ context.Context, obj *resource.Object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, obj.Name)
	n.seen = resource.Version(strings.Clone(string(obj.Version)))
	for _, v := range n.views {
		if _, was := v.set.Selected[obj.Name]; was {
			v.moved = n.seen
		}
		set := v.copyLocked()
		delete(set.Selected, obj.Name)
		delete(set.Exists, obj.Name)
		v.publishLocked(set)
	}
	return nil
}

// Bookmark tells that nothing has changed up to a version.
func (n *namespaces) Bookmark(_ context.Context, version resource.Version) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = version
	return nil
}

// BeginReplace begins to read a list.
func (n *namespaces) BeginReplace(context.Context, resource.Relist) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listed = map[string]namespace{}
	return nil
}

// Replace takes an item of the list.
func (n *namespaces) Replace(_ context.Context, obj *resource.Object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listed[strings.Clone(obj.Name)] = namespaceOf(obj)
	return nil
}

// EndReplace makes the list what there is.
func (n *namespaces) EndReplace(_ context.Context, version resource.Version) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.synced, n.known, n.listed, n.seen = true, n.listed, nil, version
	for _, v := range n.views {
		v.moved = version
		v.publishLocked(v.chooseLocked())
	}
	return nil
}

// put looks at a namespace that is there.
func (n *namespaces) put(obj *resource.Object) error {
	name, ns := strings.Clone(obj.Name), namespaceOf(obj)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name], n.seen = ns, ns.version
	for _, v := range n.views {
		_, was := v.set.Selected[name]
		if is := v.selector.Matches(ns.labels); v.set.Exists[name] && was == is {
			continue // most updates of namespaces change nothing here
		}
		set := v.copyLocked()
		set.Exists[name] = true
		if was {
			delete(set.Selected, name)
		} else if v.selector.Matches(ns.labels) {
			set.Selected[name] = ns.version
		}
		if _, is := set.Selected[name]; is != was {
			v.moved = ns.version
		}
		v.publishLocked(set)
	}
	return nil
}

func namespaceOf(obj *resource.Object) namespace {
	ns := namespace{version: resource.Version(strings.Clone(string(obj.Version)))}
	// The API server has checked them: what is no label selects nothing.
	_ = json.Unmarshal(resource.Member(resource.Member(obj.Raw, "metadata"), "labels"), &ns.labels)
	return ns
}

func (v *namespaceView) copyLocked() *reflector.NamespaceSet {
	return &reflector.NamespaceSet{Selected: maps.Clone(v.set.Selected), Exists: maps.Clone(v.set.Exists)}
}

// chooseLocked selects among all namespaces. One that was selected before is as of the version with which it came in.
func (v *namespaceView) chooseLocked() *reflector.NamespaceSet {
	set := &reflector.NamespaceSet{Selected: map[string]resource.Version{}, Exists: map[string]bool{}}
	for name, ns := range v.all.known {
		set.Exists[name] = true
		if !v.selector.Matches(ns.labels) {
			continue
		}
		set.Selected[name] = ns.version
		if v.set != nil && v.set.Selected[name] != "" {
			set.Selected[name] = v.set.Selected[name]
		}
	}
	return set
}
