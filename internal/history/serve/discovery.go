package serve

import (
	"net/http"
	"slices"
	"strings"

	discovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var readVerbs = []string{"get", "list", "watch"}

// discovery answers /api, /apis and /apis/GROUP.
func (q *request) discovery(parts []string) {
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	if len(parts) == 1 && strings.Contains(q.r.Header.Get("Accept"), "as=APIGroupDiscoveryList") &&
		strings.Contains(q.r.Header.Get("Accept"), "v=v2") {
		q.aggregated(types, parts[0] == "api")
		return
	}
	if parts[0] == "api" {
		q.json(http.StatusOK, &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{
				ClientCIDR:    "0.0.0.0/0",
				ServerAddress: q.r.Host,
			}},
		})
		return
	}
	list := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{},
	}
	for _, name := range groupsOf(types) {
		if name == "" {
			continue
		}
		g := metav1.APIGroup{Name: name}
		for _, version := range versionsOf(types, name) {
			g.Versions = append(g.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
		}
		g.PreferredVersion = g.Versions[0]
		if len(parts) == 2 && parts[1] == name {
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			q.json(http.StatusOK, &g)
			return
		}
		list.Groups = append(list.Groups, g)
	}
	if len(parts) == 2 {
		q.notFound(q.server.what() + " has no group " + parts[1])
		return
	}
	q.json(http.StatusOK, list)
}

func groupsOf(types []*resourceType) (names []string) {
	for _, t := range types {
		names = append(names, t.Group)
	}
	return slices.Compact(names) // they are sorted
}

func versionsOf(types []*resourceType, group string) (versions []string) {
	for _, t := range types {
		if t.Group == group && !slices.Contains(versions, t.Version) {
			versions = append(versions, t.Version)
		}
	}
	slices.Sort(versions)
	slices.Reverse(versions) // v1 comes before v1beta1
	slices.SortStableFunc(versions, func(a, b string) int { return len(a) - len(b) })
	return versions
}

// resourceList answers /apis/GROUP/VERSION.
func (q *request) resourceList(group, version string) {
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(group+"/"+version, "/"), APIResources: []metav1.APIResource{},
	}
	for _, t := range types {
		if t.Group == group && t.Version == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: t.Resource, SingularName: t.Singular, Namespaced: t.Namespaced, Kind: t.Kind,
				Verbs: readVerbs, ShortNames: t.Short, Categories: t.Categories,
			})
		}
	}
	if len(list.APIResources) == 0 && group != "" {
		q.notFound(q.server.what() + " has nothing of " + list.GroupVersion)
		return
	}
	q.json(http.StatusOK, list)
}

// aggregated answers with all groups and resources at once.
func (q *request) aggregated(types []*resourceType, core bool) {
	const mediaType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	list := &discovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []discovery.APIGroupDiscovery{},
	}
	for _, name := range groupsOf(types) {
		if (name == "") != core {
			continue
		}
		g := discovery.APIGroupDiscovery{}
		g.Name = name
		for _, version := range versionsOf(types, name) {
			g.Versions = append(g.Versions, discovery.APIVersionDiscovery{
				Version: version, Freshness: discovery.DiscoveryFreshnessCurrent,
				Resources: discovered(types, name, version),
			})
		}
		list.Items = append(list.Items, g)
	}
	q.w.Header().Set("Vary", "Accept")
	q.jsonAs(mediaType, list)
}

func discovered(
	types []*resourceType, group, version string,
) (list []discovery.APIResourceDiscovery) {
	for _, t := range types {
		if t.Group != group || t.Version != version {
			continue
		}
		scope := discovery.ScopeCluster
		if t.Namespaced {
			scope = discovery.ScopeNamespace
		}
		gvk := metav1.GroupVersionKind(schema.GroupVersionKind{
			Group: group, Version: version,
			Kind: t.Kind,
		})
		list = append(list, discovery.APIResourceDiscovery{
			Resource: t.Resource, ResponseKind: &gvk, Scope: scope, SingularResource: t.Singular,
			Verbs: readVerbs, ShortNames: t.Short, Categories: t.Categories,
		})
	}
	return list
}
