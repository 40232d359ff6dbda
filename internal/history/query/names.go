package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// ErrUnknownResource is in the error for a resource that the history has nothing of.
var ErrUnknownResource = errors.New("the history has no such resource")

// shortNames are those that kubectl knows of the kinds that every cluster has.
var shortNames = map[string]string{
	"cj": "cronjobs", "cm": "configmaps", "cr": "controllerrevisions",
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

// ShortNames are those that kubectl knows of a resource.
func ShortNames(resource string) (names []string) {
	for short, long := range shortNames {
		if long == resource {
			names = append(names, short)
		}
	}
	slices.Sort(names)
	return names
}

// Units are all that are known, in the order in which they came.
func (h Resources) Units() []*record.Unit { return h.db.Units() }

// Resolve finds the units of a resource, by a name as kubectl takes it: "pods", "po", "Pod",
// "deployments.apps", "deployments.v1.apps". cluster is "" for all.
func (h Resources) Resolve(name, cluster string) ([]*record.Unit, error) {
	word, rest, qualified := strings.Cut(strings.ToLower(name), ".")
	var found []*record.Unit
	var known []string
	for _, u := range h.db.Units() {
		if u.Resource == "" || u.Source == record.ArchiveSource || cluster != "" && u.Cluster() != cluster {
			continue
		}
		known = append(known, u.GroupResource())
		if qualified && rest != u.Group && !strings.HasSuffix(rest, "."+u.Group) && u.Group != "" ||
			qualified && u.Group == "" && strings.Contains(rest, ".") {
			continue
		}
		if word == u.Resource || word == strings.ToLower(u.Kind) || shortNames[word] == u.Resource {
			found = append(found, u)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	slices.Sort(known)
	known = slices.Compact(known)
	names := known
	for _, k := range known {
		plural, _, _ := strings.Cut(k, ".")
		names = append(slices.Clip(names), plural)
		for short, long := range shortNames {
			if long == plural {
				names = append(names, short)
			}
		}
	}
	slices.Sort(names[len(known):]) // the same hint each time
	const few = 12
	if hint := suggest.Nearest(strings.ToLower(name), names, len(name)/3+1); hint != "" {
		return nil, fmt.Errorf("%s: %w: did you mean %q?", name, ErrUnknownResource, hint)
	}
	switch {
	case len(known) == 0:
		return nil, fmt.Errorf("%s: %w: it holds no objects", name, ErrUnknownResource)
	case len(known) > few:
		return nil, fmt.Errorf("%s: %w", name, ErrUnknownResource)
	}
	return nil, fmt.Errorf("%s: %w; there are %s", name, ErrUnknownResource, strings.Join(known, ", "))
}

// Clusters are the names of those that the history has objects of.
func (h Resources) Clusters() (names []string) {
	for _, u := range h.db.Units() {
		if u.Source != record.ArchiveSource && !slices.Contains(names, u.Cluster()) {
			names = append(names, u.Cluster())
		}
	}
	slices.Sort(names)
	return names
}

// Select are the units of some resources of a cluster, named as Resolve takes them; of all for
// none.
func (h Resources) Select(cluster string, names []string) (units []*record.Unit, err error) {
	for _, name := range names {
		found, err := h.Resolve(name, cluster)
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
