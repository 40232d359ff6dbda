package kube

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

// OfflineSelection is what a name selects when some names are excluded, without asking an API
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

// excluded are the resources that are excluded, with the resource "*" for all of a group, and the
// group "*" for all groups.
type excluded map[schema.GroupResource]bool

func newExcluded(names []string) excluded {
	x := excluded{}
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

// corePlural is the resource of the core group that a word means, else the word.
func corePlural(word string) string {
	if slices.Contains(coreResources, word+"s") {
		return word + "s"
	}
	if plural, ok := coreShortNames[word]; ok {
		return plural
	}
	return word
}

func (x excluded) has(gr schema.GroupResource) bool {
	return x[gr] || x[schema.GroupResource{Group: gr.Group, Resource: "*"}] ||
		x[schema.GroupResource{Group: "*", Resource: "*"}]
}

// core are the resources of the core group that are not excluded.
func (x excluded) core() (list []schema.GroupResource) {
	for _, plural := range coreResources {
		if gr := (schema.GroupResource{Resource: plural}); !x.has(gr) {
			list = append(list, gr)
		}
	}
	return list
}

// groups are the other groups, but for those that are excluded whole.
func (x excluded) groups(catalog *Catalog) (list []schema.GroupResource) {
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

// otherGroups are the groups that have something to watch by "*", but for the core group.
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

// splitName gives the first word of a name, in small letters, and its group without the version.
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
