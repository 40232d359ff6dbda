package kube

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/bridge/internal/resource"
)

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

// Unavailable are the group versions that did not answer, with the reason: their resources are
// unknown, not absent.
func (c *Catalog) Unavailable() map[schema.GroupVersion]error { return c.unavailable }

// newCatalog orders what discovery found.
func newCatalog(found *served) *Catalog {
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
