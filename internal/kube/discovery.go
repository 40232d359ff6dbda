package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/bridge/internal/resource"
)

// acceptDiscovery asks for everything in one document, which API servers know since 1.30 (v2) or
// 1.27 (v2beta1, with the same fields); older ones answer with their group versions only.
const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// servedResources is what an API server serves, as far as it was asked.
type servedResources struct {
	groups []*metav1.APIGroup // in the order of the server
	lists  map[schema.GroupVersion][]metav1.APIResource
	failed map[schema.GroupVersion]error
}

// discover asks for the core group and for all others. A server that has no core group is one of
// aggregated APIs.
func (r *Resolver) discover(ctx context.Context) (*servedResources, error) {
	s := &servedResources{
		lists:  map[schema.GroupVersion][]metav1.APIResource{},
		failed: map[schema.GroupVersion]error{},
	}
	if err := r.addGroups(ctx, s, "/api"); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err := r.addGroups(ctx, s, "/apis"); err != nil {
		return nil, err
	}
	r.addMissingLists(ctx, s)
	if err := ctx.Err(); err != nil {
		return nil, err // what did not answer in time would be taken for unavailable
	}
	if len(s.lists) == 0 && len(s.failed) > 0 {
		return nil, errors.Join(slices.Collect(maps.Values(s.failed))...)
	}
	return s, nil
}

// addGroups adds what /api or /apis answers.
func (r *Resolver) addGroups(ctx context.Context, s *servedResources, path string) error {
	body, contentType, err := send(ctx,
		r.client.Get().AbsPath(path).SetHeader("Accept", acceptDiscovery))
	if err != nil {
		return err
	}
	if isAggregated(contentType) {
		return s.addAggregated(body)
	}
	var answer struct {
		Versions []string           // of the core group, by /api
		Groups   []*metav1.APIGroup // by /apis
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(answer.Versions) > 0 {
		core := &metav1.APIGroup{}
		for _, v := range answer.Versions {
			core.Versions = append(core.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
		}
		core.PreferredVersion = core.Versions[0]
		s.groups = append(s.groups, core)
	}
	s.groups = append(s.groups, answer.Groups...)
	return nil
}

// isAggregated reports whether an answer has everything in it, and not the groups only.
func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && params["as"] == "APIGroupDiscoveryList" &&
		params["g"] == "apidiscovery.k8s.io" && (params["v"] == "v2" || params["v"] == "v2beta1")
}

// aggregatedGroups is an APIGroupDiscoveryList of apidiscovery.k8s.io, as far as it is used here.
type aggregatedGroups struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version, Freshness string
			Resources          []struct {
				Resource, SingularResource, Scope string
				ResponseKind                      struct{ Kind string }
				ShortNames, Verbs                 []string
			}
		}
	}
}

// addAggregated adds a document with everything. Versions are in the server's order of preference.
// A stale one is that of an aggregated API whose own server did not answer: what the document has
// of it may be gone.
func (s *servedResources) addAggregated(body []byte) error {
	var list aggregatedGroups
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		group := &metav1.APIGroup{Name: item.Metadata.Name}
		for _, v := range item.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
			if v.Freshness == "Stale" {
				s.failed[gv] = fmt.Errorf("the server of %s does not answer the API server", gv)
				continue
			}
			group.Versions = append(group.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.Version})
			resources := []metav1.APIResource{}
			for _, r := range v.Resources {
				if r.ResponseKind.Kind == "" {
					continue // it has subresources only
				}
				resources = append(resources, metav1.APIResource{
					Name: r.Resource, SingularName: r.SingularResource, Kind: r.ResponseKind.Kind,
					Namespaced: r.Scope == "Namespaced", ShortNames: r.ShortNames, Verbs: r.Verbs,
				})
			}
			s.lists[gv] = resources
		}
		if len(group.Versions) > 0 {
			group.PreferredVersion = group.Versions[0]
		}
		s.groups = append(s.groups, group)
	}
	return nil
}

// addMissingLists asks for the resources of each group version that no document had, all at once.
func (r *Resolver) addMissingLists(ctx context.Context, s *servedResources) {
	var missing []schema.GroupVersion
	for _, group := range s.groups {
		for _, v := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
			if s.lists[gv] == nil {
				missing = append(missing, gv)
			}
		}
	}
	var mu sync.Mutex // guards s
	var asking sync.WaitGroup
	for _, gv := range missing {
		asking.Go(func() {
			resources, err := r.list(ctx, gv)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.failed[gv] = err
				return
			}
			s.lists[gv] = resources
		})
	}
	asking.Wait()
}

// list asks for the resources of one group version.
func (r *Resolver) list(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	body, _, err := send(ctx, r.client.Get().AbsPath(path))
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list.APIResources, nil
}

// Catalog is what an API server served when it was asked. It never changes, and may be used
// concurrently.
type Catalog struct {
	// entries are the resources without subresources, groups in the order of the server, which is
	// kubectl's order of preference; within a group preferred versions first.
	entries []entry
	// unavailable are the group versions that did not answer.
	unavailable map[schema.GroupVersion]error
}

// entry is one resource in one version.
type entry struct {
	resource.Type
	singular   string
	shortNames []string
	verbs      []string
}

// watchable reports whether an informer can keep the resource in sync.
func (e *entry) watchable() bool {
	return slices.Contains(e.verbs, "list") && slices.Contains(e.verbs, "watch")
}

// Unavailable returns the group versions that did not answer, with the reason: their resources are
// unknown, not absent.
func (c *Catalog) Unavailable() map[schema.GroupVersion]error { return c.unavailable }

// newCatalog orders what discovery found.
func newCatalog(found *servedResources) *Catalog {
	c := &Catalog{unavailable: found.failed}
	for _, group := range found.groups {
		for _, v := range preferredFirst(group) {
			for _, r := range found.lists[schema.GroupVersion{Group: group.Name, Version: v.Version}] {
				if !strings.Contains(r.Name, "/") {
					c.entries = append(c.entries, newEntry(group.Name, v.Version, r))
				}
			}
		}
	}
	return c
}

// preferredFirst lists the versions of a group, the preferred one first and the others in the
// server's order of priority.
func preferredFirst(group *metav1.APIGroup) []metav1.GroupVersionForDiscovery {
	versions := slices.Clone(group.Versions)
	slices.SortStableFunc(versions, func(a, b metav1.GroupVersionForDiscovery) int {
		return cmp.Compare(preference(group, a), preference(group, b))
	})
	return versions
}

func preference(group *metav1.APIGroup, v metav1.GroupVersionForDiscovery) int {
	if v.Version == group.PreferredVersion.Version {
		return 0
	}
	return 1
}

func newEntry(group, version string, r metav1.APIResource) entry {
	return entry{
		Type: resource.Type{
			Group: group, Version: version, Resource: r.Name,
			Kind: r.Kind, Namespaced: r.Namespaced,
		},
		// API servers before 1.27 leave the singular of built-in resources out; it is the kind
		// then.
		singular:   cmp.Or(r.SingularName, strings.ToLower(r.Kind)),
		shortNames: r.ShortNames,
		verbs:      r.Verbs,
	}
}

// coreResources are those of the core group that can be listed and watched.
var coreResources = []string{
	"configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes",
	"persistentvolumeclaims", "persistentvolumes", "pods",
	"podtemplates", "replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts",
	"services",
}

// coreShortNames are the short names of these.
var coreShortNames = map[string]string{
	"cm": "configmaps", "ep": "endpoints", "ev": "events", "limits": "limitranges",
	"ns": "namespaces", "no": "nodes", "pvc": "persistentvolumeclaims", "pv": "persistentvolumes",
	"po": "pods", "rc": "replicationcontrollers", "quota": "resourcequotas",
	"sa": "serviceaccounts", "svc": "services",
}

// ownGroups are the groups of Kubernetes itself that have something to watch, but for the core
// group and events.k8s.io, which "*" leaves out.
var ownGroups = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps",
	"autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io",
	"node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io",
	"storage.k8s.io", "storagemigration.k8s.io",
}

// OfflineSelection returns what a name selects when some names are excluded, without asking an API
// server; "*" for all. A role can't subtract:
//
//   - Excluded resources of the core group are taken out of "*." by naming the others.
//   - "*" without Secrets is the other resources of the core group, and all of each group of a
//     catalog, or of Kubernetes itself where there is none. Without other core resources it stays
//     "*": a role that names groups does not cover those that come later.
//   - What is excluded from the wildcard of another group stays in it.
//
// Whatever is excluded by a name that can't be read offline (short names of other groups) stays
// too.
func OfflineSelection(name string, exclude []string, catalog *Catalog) ([]schema.GroupResource, error) {
	group, plural, err := Offline(name)
	if err != nil {
		return nil, err
	}
	x := newExcluded(exclude)
	selected := schema.GroupResource{Group: group, Resource: plural}
	switch {
	case x.has(selected):
		return nil, nil
	case group == "" && plural == "*" && len(x.core()) < len(coreResources):
		return x.core(), nil
	case group == "*" && x.has(schema.GroupResource{Resource: "secrets"}):
		return append(x.core(), x.groups(catalog)...), nil
	}
	return []schema.GroupResource{selected}, nil
}

// ExcludesSecrets reports whether one of some excluded names takes core Secrets out.
func ExcludesSecrets(exclude []string) bool {
	return newExcluded(exclude).has(schema.GroupResource{Resource: "secrets"})
}

// excludedResources are the resources that are excluded, with the resource "*" for all of a group,
// and the group "*" for all groups.
type excludedResources map[schema.GroupResource]bool

func newExcluded(names []string) excludedResources {
	x := excludedResources{}
	for _, name := range names {
		gr := excludedName(name)
		x[gr] = true
		if isEvents(gr) { // two names of one storage
			x[coreEvents], x[eventsAgain] = true, true
		}
	}
	return x
}

// excludedName reads a name as Catalog.find does: for the core group also the singular and short
// names.
func excludedName(name string) schema.GroupResource {
	if group, all, ok := wildcard(strings.ToLower(name)); all {
		return schema.GroupResource{Group: "*", Resource: "*"}
	} else if ok {
		return schema.GroupResource{Group: group, Resource: "*"}
	}
	word, group := splitName(name)
	if group == "" {
		word = corePlural(word)
	}
	return schema.GroupResource{Group: group, Resource: word}
}

// corePlural returns the resource of the core group that a word means, else the word.
func corePlural(word string) string {
	if slices.Contains(coreResources, word+"s") {
		return word + "s"
	}
	if plural, ok := coreShortNames[word]; ok {
		return plural
	}
	return word
}

func (x excludedResources) has(gr schema.GroupResource) bool {
	return x[gr] || x[schema.GroupResource{Group: gr.Group, Resource: "*"}] ||
		x[schema.GroupResource{Group: "*", Resource: "*"}]
}

// core returns the resources of the core group that are not excluded.
func (x excludedResources) core() (list []schema.GroupResource) {
	for _, plural := range coreResources {
		if gr := (schema.GroupResource{Resource: plural}); !x.has(gr) {
			list = append(list, gr)
		}
	}
	return list
}

// groups returns the other groups, but for those that are excluded whole.
func (x excludedResources) groups(catalog *Catalog) (list []schema.GroupResource) {
	groups := ownGroups
	if catalog != nil {
		groups = catalog.otherGroups()
	}
	for _, group := range groups {
		if all := (schema.GroupResource{Group: group, Resource: "*"}); !x.has(all) {
			list = append(list, all)
		}
	}
	return list
}

// otherGroups returns the groups that have something to watch by "*", but for the core group.
func (c *Catalog) otherGroups() (groups []string) {
	for i := range c.entries {
		e := &c.entries[i]
		if e.Group != "" && e.watchable() && !isEventsAgain(e.GVR().GroupResource()) {
			groups = append(groups, e.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// Offline returns group and resource of a name without asking an API server, "*" for all. It needs
// the plural, and the group of what is not in the core group: "pods", "deployments.apps",
// "widgets.v1.example.com", "*.apps", "*".
func Offline(name string) (group, resource string, err error) {
	if group, all, ok := wildcard(name); all {
		return "*", "*", nil
	} else if ok {
		return group, "*", nil
	}
	resource, group = splitName(name)
	if group == "" && !slices.Contains(coreResources, resource) {
		return "", "", fmt.Errorf("%s: ambiguous without a cluster: write the plural with its "+
			"group, such as deployments.apps, or ask the server", name)
	}
	return group, resource, nil
}

// splitName returns the first word of a name, in small letters, and its group without the version.
func splitName(name string) (word, group string) {
	word, group, _ = strings.Cut(strings.ToLower(name), ".")
	if first, rest, _ := strings.Cut(group, "."); isVersion(first) {
		group = rest
	}
	return word, group
}

// isVersion reports whether a part of a name is a version of an API: v1, v1beta1.
func isVersion(part string) bool {
	digits, ok := strings.CutPrefix(part, "v")
	return ok && digits != "" && digits[0] >= '0' && digits[0] <= '9'
}
