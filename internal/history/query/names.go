package query

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// Errors about the name of a resource.
var (
	// ErrUnknownResource: the history has no object of it.
	ErrUnknownResource = errors.New("the history has no such resource")
	// ErrSeveralResources: the name fits several.
	ErrSeveralResources = errors.New("fits several resources")
)

// shortNames are those that kubectl knows of the kinds that every cluster has.
var shortNames = map[string]string{
	"cj": "cronjobs", "cm": "configmaps",
	"crd":  "customresourcedefinitions",
	"crds": "customresourcedefinitions", "cs": "componentstatuses",
	"csr":    "certificatesigningrequests",
	"deploy": "deployments", "ds": "daemonsets", "ep": "endpoints", "ev": "events",
	"hpa": "horizontalpodautoscalers", "ing": "ingresses", "limits": "limitranges",
	"netpol": "networkpolicies",
	"no":     "nodes", "ns": "namespaces", "pc": "priorityclasses", "pdb": "poddisruptionbudgets",
	"po": "pods",
	"pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
	"rc": "replicationcontrollers", "rs": "replicasets", "sa": "serviceaccounts",
	"sc":  "storageclasses",
	"sts": "statefulsets", "svc": "services",
}

// ShortNames returns the short names that kubectl has for a resource of a built-in group.
func ShortNames(group, resource string) (names []string) {
	if !slices.Contains(builtInGroups, group) {
		return nil
	}
	for short, long := range shortNames {
		if long == resource {
			names = append(names, short)
		}
	}
	slices.Sort(names)
	return names
}

// SortGroups sorts groups as an API server has them: those of its own first, then by name.
func SortGroups(names []string) {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(groupRank(a)-groupRank(b), cmp.Compare(a, b))
	})
}

// groupRank is the place of a built-in group; other groups are behind them.
func groupRank(name string) int {
	if i := slices.Index(builtInGroups, name); i >= 0 {
		return i
	}
	return len(builtInGroups)
}

// builtInGroups are those of the API server itself, in the order in which kubectl looks for a name.
var builtInGroups = []string{
	"", "apiregistration.k8s.io", "extensions", "apps", "events.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy",
	"rbac.authorization.k8s.io", "storage.k8s.io", "admissionregistration.k8s.io",
	"apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io",
	"node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
	"internal.apiserver.k8s.io", "storagemigration.k8s.io",
}

// Units returns all units, in the order in which they came.
func (h Resources) Units() []*record.Unit { return h.db.Units() }

// Kinds returns the kinds that the objects of a unit had, the newest last.
func (h Resources) Kinds(u *record.Unit) []string { return h.db.Kinds(u) }

// Resolve finds the units of one resource by a name as kubectl takes it: "pods", "po", "Pod",
// "deployments.apps", "deployments.v1.apps". cluster is "" for all. The names of custom resources
// are those that their definitions had at a point, where the history has the definitions. As with
// kubectl a plural comes before a short name, a short name before a singular, and a built-in group
// before others. A name that still fits several resources is refused with ErrSeveralResources.
func (h Resources) Resolve(name, cluster string, at Point) ([]*record.Unit, error) {
	word, group, isQualified := strings.Cut(strings.ToLower(name), ".")
	var candidates []*record.Unit
	for _, u := range h.db.Units() {
		if u.Resource != "" && u.Source != record.ArchiveSource && (cluster == "" || u.Cluster() == cluster) &&
			(!isQualified || isQualifiedBy(u.Group, group)) {
			candidates = append(candidates, u)
		}
	}
	found := matching(candidates, func(u *record.Unit) bool { return u.Resource == word })
	if len(found) > 0 {
		return onlyResource(name, found)
	}
	definitions, err := h.definitionsOf(candidates, at)
	if err != nil {
		return nil, err
	}
	for _, isNamed := range []func(u *record.Unit) bool{
		func(u *record.Unit) bool {
			return slices.Contains(ShortNames(u.Group, u.Resource), word) ||
				slices.Contains(definitions[u].Spec.Names.ShortNames, word)
		},
		func(u *record.Unit) bool {
			return definitions[u].Spec.Names.Singular == word || slices.ContainsFunc(h.db.Kinds(u),
				func(kind string) bool { return strings.ToLower(kind) == word })
		},
	} {
		if found = matching(candidates, isNamed); len(found) > 0 {
			return onlyResource(name, found)
		}
	}
	return nil, h.unknownResource(name, cluster, definitions)
}

func matching(units []*record.Unit, is func(*record.Unit) bool) []*record.Unit {
	return slices.Collect(func(yield func(*record.Unit) bool) {
		for _, u := range units {
			if is(u) && !yield(u) {
				return
			}
		}
	})
}

// isQualifiedBy reports whether "apps" or "v1.apps" means a group. "v1" and "" mean the core group.
func isQualifiedBy(group, qualifier string) bool {
	version, rest, _ := strings.Cut(qualifier, ".")
	isVersion := len(version) > 1 && version[0] == 'v' && '0' <= version[1] && version[1] <= '9'
	return qualifier == group || isVersion && rest == group
}

// onlyResource returns the units of the resource that kubectl would take.
func onlyResource(name string, found []*record.Unit) ([]*record.Unit, error) {
	rank := func(u *record.Unit) int { return groupRank(u.Group) }
	best := rank(slices.MinFunc(found, func(a, b *record.Unit) int { return rank(a) - rank(b) }))
	found = matching(found, func(u *record.Unit) bool { return rank(u) == best })
	var resources []string
	for _, u := range found {
		resources = append(resources, u.GroupResource())
	}
	slices.Sort(resources)
	if resources = slices.Compact(resources); len(resources) > 1 {
		return nil, fmt.Errorf("%s %w: give one of %s", name, ErrSeveralResources,
			strings.Join(resources, ", "))
	}
	return found, nil
}

// unknownResource returns the error for a name, with one that is close to it.
func (h Resources) unknownResource(
	name, cluster string, definitions map[*record.Unit]Definition,
) error {
	var known, names []string
	for _, u := range h.db.Units() {
		if u.Resource == "" || u.Source == record.ArchiveSource || cluster != "" && u.Cluster() != cluster {
			continue
		}
		known = append(known, u.GroupResource())
		names = append(append(names, u.Resource), ShortNames(u.Group, u.Resource)...)
		names = append(names, definitions[u].Spec.Names.ShortNames...)
	}
	slices.Sort(known)
	slices.Sort(names) // the same hint each time
	known = slices.Compact(known)
	const few = 12
	hint := suggest.Nearest(strings.ToLower(name), append(slices.Clip(known), names...), len(name)/3+1)
	switch {
	case hint != "":
		return fmt.Errorf("%s: %w: did you mean %q?", name, ErrUnknownResource, hint)
	case len(known) == 0:
		return fmt.Errorf("%s: %w: it holds no objects", name, ErrUnknownResource)
	case len(known) > few:
		return fmt.Errorf("%s: %w", name, ErrUnknownResource)
	}
	return fmt.Errorf("%s: %w; there are %s", name, ErrUnknownResource, strings.Join(known, ", "))
}

// Definition is what a CustomResourceDefinition says of its resource.
type Definition struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural     string   `json:"plural"`
			Singular   string   `json:"singular"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions []struct {
			Name    string             `json:"name"`
			Columns []DefinitionColumn `json:"additionalPrinterColumns"`
			// SelectableFields are those of field selectors.
			SelectableFields []struct {
				JSONPath string `json:"jsonPath"`
			} `json:"selectableFields"`
		} `json:"versions"`
	} `json:"spec"`
}

// DefinitionColumn is one column of a table that a CustomResourceDefinition names.
type DefinitionColumn struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Format   string `json:"format"`
	JSONPath string `json:"jsonPath"`
	Priority int32  `json:"priority"`
}

// Definitions returns the definitions of a cluster's custom resources as they were at a point, by
// plural and group as GroupResource has them. One that was gone by then is as it was last.
func (h Resources) Definitions(cluster string, at Point) (map[string]Definition, error) {
	list := map[string]Definition{}
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster || u.GroupResource() != "customresourcedefinitions.apiextensions.k8s.io" {
			continue
		}
		for o, err := range Objects(h).All(u, "") {
			if err != nil {
				return nil, err
			}
			v, err := Objects(h).At(&o, at)
			if err != nil {
				return nil, err
			}
			var d Definition
			if v != nil && json.Unmarshal(v.Event.Data, &d) == nil { // the stream may have no objects
				list[d.Spec.Names.Plural+"."+d.Spec.Group] = d
			}
		}
	}
	return list, nil
}

// definitionsOf returns the definitions of some units.
func (h Resources) definitionsOf(units []*record.Unit, at Point) (map[*record.Unit]Definition, error) {
	found := map[*record.Unit]Definition{}
	byCluster := map[string]map[string]Definition{}
	for _, u := range units {
		list, known := byCluster[u.Cluster()]
		if !known {
			var err error
			if list, err = h.Definitions(u.Cluster(), at); err != nil {
				return nil, err
			}
			byCluster[u.Cluster()] = list
		}
		if d, is := list[u.GroupResource()]; is {
			found[u] = d
		}
	}
	return found, nil
}

// Clusters returns the names of the clusters that the history has objects of.
func (h Resources) Clusters() (names []string) {
	for _, u := range h.db.Units() {
		if u.Source != record.ArchiveSource && !slices.Contains(names, u.Cluster()) {
			names = append(names, u.Cluster())
		}
	}
	slices.Sort(names)
	return names
}

// Select returns the units of some resources of a cluster, named as Resolve takes them at a point.
// Without names it returns the units of all.
func (h Resources) Select(
	cluster string, names []string, at Point,
) (units []*record.Unit, err error) {
	for _, name := range names {
		found, err := h.Resolve(name, cluster, at)
		if err != nil {
			return nil, err
		}
		units = append(units, found...)
	}
	if len(names) == 0 {
		for _, u := range h.db.Units() {
			if u.Cluster() == cluster && u.Resource != "" {
				units = append(units, u)
			}
		}
	}
	slices.SortFunc(units, func(a, b *record.Unit) int { return int(a.Number) - int(b.Number) })
	return slices.Compact(units), nil
}
