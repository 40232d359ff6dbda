package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// fewNames is how many names an error lists.
const fewNames = 12

// Selection says which resources are meant.
type Selection struct {
	// Names as kubectl takes them: "pods", "po", "Pod", "deployments.apps", "deployments.v1.apps",
	// "*", "*.apps".
	Names []string
	// Exclude takes resources out, in whatever version. A name that the server does not have
	// excludes nothing, unless it is so near to one that it has that it must be a mistake: that is
	// an error.
	Exclude []string
	// Namespaced leaves cluster-scoped resources out of "*", and refuses those that are named.
	Namespaced bool
}

// ErrUnknown is in the error for a name that the API server does not serve.
var ErrUnknown = errors.New("the API server has no such resource")

// ErrUnavailable is in the error for a name that may exist: a group that could have it did not
// answer. Ask again later.
var ErrUnavailable = errors.New("part of the API is unavailable")

// Resolve finds the resources of a selection: each once, in the order of their names. The error
// joins one for each name that can't be watched, ErrUnknown and ErrUnavailable among them; the
// resources that were found come with it.
func (c *Catalog) Resolve(s Selection) ([]resource.Type, error) {
	found := map[schema.GroupResource]resource.Type{}
	var errs []error
	for _, name := range s.Names {
		types, err := c.named(name, s.Namespaced)
		errs = append(errs, err)
		for _, t := range types {
			if _, there := found[t.GVR().GroupResource()]; !there {
				found[t.GVR().GroupResource()] = t
			}
		}
	}
	for _, name := range s.Exclude {
		errs = append(errs, c.exclude(found, name))
	}
	types := slices.SortedFunc(maps.Values(found),
		func(a, b resource.Type) int { return cmp.Compare(a.String(), b.String()) })
	return types, errors.Join(errs...)
}

func (c *Catalog) named(name string, namespaced bool) ([]resource.Type, error) {
	if group, all, ok := wildcard(name); ok {
		return c.wildcard(name, group, all, namespaced)
	}
	e := c.find(name)
	switch {
	case e == nil:
		return nil, c.notFound(name)
	case !e.watchable():
		return nil, fmt.Errorf("%s can't be watched: the API server allows only %s", name,
			strings.Join(e.verbs, ", "))
	case namespaced && !e.Namespaced:
		return nil, fmt.Errorf("%s is in no namespace, so it can't be limited to some: give it "+
			"an informer without namespaces", name)
	}
	return []resource.Type{e.Type}, nil
}

// wildcard takes "*" and "*.group" apart.
func wildcard(name string) (group string, all, ok bool) {
	if name == "*" {
		return "", true, true
	}
	group, ok = strings.CutPrefix(name, "*.")
	return group, false, ok
}

// wildcard finds what "*" or "*.group" selects: each resource in its first, which is its preferred,
// version.
func (c *Catalog) wildcard(name, group string, all, namespaced bool) ([]resource.Type, error) {
	var types []resource.Type
	known, seen := false, map[schema.GroupResource]bool{}
	for i := range c.entries {
		e := &c.entries[i]
		if !all && e.Group != group {
			continue
		}
		known = true
		gr := e.GVR().GroupResource()
		if seen[gr] || !e.watchable() || namespaced && !e.Namespaced || all && isEventsAgain(gr) {
			continue
		}
		seen[gr] = true
		types = append(types, e.Type)
	}
	if !known {
		return nil, c.notFound(name)
	}
	return types, nil
}

// events has two names for one storage: whatever is written as one can be read as the other, with
// the same uid and version.
var (
	coreEvents  = schema.GroupResource{Resource: "events"}
	eventsAgain = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
)

// isEventsAgain keeps "*" from sending every Event twice.
func isEventsAgain(gr schema.GroupResource) bool { return gr == eventsAgain }

// exclude takes what a name selects out of found. Either name of Events takes both out.
func (c *Catalog) exclude(found map[schema.GroupResource]resource.Type, name string) error {
	group, all, isWildcard := wildcard(name)
	var named schema.GroupResource
	if !isWildcard {
		e := c.find(name)
		if e == nil {
			return c.misspelt(name)
		}
		named = e.GVR().GroupResource()
	}
	maps.DeleteFunc(found, func(gr schema.GroupResource, _ resource.Type) bool {
		if isWildcard {
			return all || gr.Group == group
		}
		return gr == named || isEvents(gr) && isEvents(named)
	})
	return nil
}

// misspelt complains of an excluded name that differs by a letter or two from one that there is.
// Other names may be of resources that this cluster does not have, or not yet.
func (c *Catalog) misspelt(name string) error {
	best := suggest.Nearest(strings.ToLower(name), c.known(strings.Contains(name, ".")), 2)
	if best == "" {
		return nil
	}
	return fmt.Errorf("exclude %s: %w: did you mean %q?", name, ErrUnknown, best)
}

func isEvents(gr schema.GroupResource) bool { return gr == coreEvents || gr == eventsAgain }

// find looks a name up: exact plurals, singulars and kinds before short names, as kubectl does, and
// among several groups the server's first.
func (c *Catalog) find(name string) *entry {
	word, rest, qualified := strings.Cut(strings.ToLower(name), ".")
	for _, matches := range []func(*entry) bool{
		func(e *entry) bool {
			return e.Resource == word || e.singular == word || strings.ToLower(e.Kind) == word
		},
		func(e *entry) bool { return slices.Contains(e.shortNames, word) },
	} {
		for i := range c.entries {
			if e := &c.entries[i]; matches(e) && (!qualified || qualifies(e, rest)) {
				return e
			}
		}
	}
	return nil
}

// qualifies reports whether what stands behind a name is the resource's group, version and group,
// or version.
func qualifies(e *entry, rest string) bool {
	if e.Group == "" {
		return rest == e.Version
	}
	return rest == e.Group || rest == e.Version+"."+e.Group
}

// notFound says why a name selects nothing: there is no such resource, or its group is not there to
// be asked.
func (c *Catalog) notFound(name string) error {
	hint := suggest.DidYouMean(strings.ToLower(name), c.known(strings.Contains(name, ".")),
		fewNames)
	if down := c.couldHave(name); len(down) > 0 {
		return fmt.Errorf("%s: %w: %s%s", name, ErrUnavailable, strings.Join(down, "; "), hint)
	}
	return fmt.Errorf("%s: %w%s", name, ErrUnknown, hint)
}

// couldHave lists the unavailable group versions that may serve a name. A name without a group may
// be anywhere.
func (c *Catalog) couldHave(name string) []string {
	_, rest, qualified := strings.Cut(strings.ToLower(name), ".")
	var down []string
	for gv, err := range c.unavailable {
		if !qualified || rest == gv.Group || rest == gv.Version+"."+gv.Group {
			down = append(down, fmt.Sprintf("%s (%v)", gv, err))
		}
	}
	slices.Sort(down)
	return down
}

// known lists the names that a user can have meant, with their groups or without.
func (c *Catalog) known(withGroup bool) []string {
	var list []string
	for i := range c.entries {
		e := &c.entries[i]
		switch {
		case !e.watchable():
		case withGroup:
			list = append(list, e.String())
		default:
			list = append(list, e.Resource, e.singular)
		}
	}
	return list
}

// Resolver asks an API server what it serves. It is safe for concurrent use.
type Resolver struct {
	client rest.Interface
	host   string
}

// NewResolver makes a resolver. It makes no request.
func NewResolver(config *rest.Config) (*Resolver, error) {
	client, err := newClient(config, nil)
	if err != nil {
		return nil, err
	}
	return &Resolver{client: client, host: config.Host}, nil
}

// Discover asks what the server serves now: in two requests, or in one per group version where it
// is older than 1.27. Group versions that don't answer are in the catalog's Unavailable; an error
// means that nothing is known, and is one of Explain.
func (r *Resolver) Discover(ctx context.Context) (*Catalog, error) {
	found, err := r.discover(ctx)
	if err == nil && len(found.failed) > 0 {
		found, err = r.discover(ctx) // a group may have come or gone between two requests
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s what it serves: %w", r.host, Explain(err, r.host))
	}
	return newCatalog(found), nil
}

// Ready asks whether the API server has everything that it serves: one that has just been started
// answers discovery before it knows all custom resources. The error says why not, or that it does
// not say; a server that does not know the question is ready.
func (r *Resolver) Ready(ctx context.Context) error {
	err := r.client.Get().AbsPath("/readyz").Do(ctx).Error()
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("ask %s whether it is ready: %w", r.host, Explain(err, r.host))
}
