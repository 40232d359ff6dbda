// Package rights finds what the informers of a configuration select, and which rights at the API
// server that needs.
//
// In: a configuration, and what the API server serves. Out: the rights as roles (bridge rbac), and
// for a running bridge the resources that it may not list (ListCheck).
package rights

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/kube"
)

// Need is a right that a configuration needs, and the key that it needs it for.
type Need struct {
	kube.Right
	Path string // "informers[0].resources[1]"; "" for the configuration as a whole
}

// needs returns the rights that an informer needs for one of its names to be watched in its
// namespaces.
func needs(inf *config.Informer, path, group, resource string) []Need {
	var list []Need
	for _, namespace := range Namespaces(inf) {
		for _, verb := range []string{"list", "watch"} {
			right := kube.Right{
				Verb: verb, Group: group, Resource: resource, Namespace: namespace,
				Name: onlyName(inf.FieldSelector),
			}
			list = append(list, Need{right, path})
		}
	}
	return list
}

// needsNamespaces returns the rights that the informer with a number needs to learn which
// namespaces are selected.
func needsNamespaces(inf *config.Informer, number int) []Need {
	if inf.NamespaceSelector == "" {
		return nil
	}
	path := fmt.Sprintf("informers[%d].namespaceSelector", number)
	var list []Need
	for _, verb := range []string{"list", "watch"} {
		list = append(list, Need{kube.Right{Verb: verb, Resource: "namespaces"}, path})
	}
	return list
}

// onlyName returns the name of the only object that a field selector selects, which then is all
// that has to be allowed.
func onlyName(fieldSelector string) string {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return "" // the configuration was checked
	}
	name, _ := selector.RequiresExactMatch("metadata.name")
	return name
}

// Needed returns the rights for what the API server serves. The problems are of names that it does
// not have; each has its place in the file.
func Needed(c *config.Config, catalog *kube.Catalog) (list []Need, problems []error) {
	list = append([]Need{{Right: kube.ReadClusterID}}, leaseNeeds(c)...)
	for i := range c.Informers {
		inf := &c.Informers[i]
		list = append(list, needsNamespaces(inf, i)...)
		before, path := len(list), fmt.Sprintf("informers[%d]", i)
		wrong := len(problems)
		for j, name := range inf.Resources {
			at := fmt.Sprintf("%s.resources[%d]", path, j)
			s := Selection(inf)
			s.Names = []string{name}
			s.Exclude = nil
			_, err := catalog.Resolve(s)
			problems = append(problems, c.ProblemsAt(at, err)...)
			s.Exclude = inf.Exclude
			types, _ := catalog.Resolve(s) // what is wrong with an exclude is reported below
			for _, t := range types {
				list = append(list, needs(inf, at, t.Group, t.Resource)...)
			}
		}
		for j, name := range inf.Exclude {
			_, err := catalog.Resolve(kube.Selection{Exclude: []string{name}})
			problems = append(problems, c.ProblemsAt(fmt.Sprintf("%s.exclude[%d]", path, j),
				err)...)
		}
		if len(list) == before && len(problems) == wrong {
			problems = append(problems, c.ProblemAt(path+".resources", "selects nothing: "+
				"everything in resources is excluded"))
		}
	}
	return list, problems
}

// neededEver returns the rights for what the configuration selects whatever the API server serves:
// a wildcard stays one, but for what kube.OfflineSelection can take out of it.
func neededEver(c *config.Config, catalog *kube.Catalog) (list []Need, problems []error) {
	list = append([]Need{{Right: kube.ReadClusterID}}, leaseNeeds(c)...)
	for i := range c.Informers {
		inf := &c.Informers[i]
		list = append(list, needsNamespaces(inf, i)...)
		for j, name := range inf.Resources {
			at := fmt.Sprintf("informers[%d].resources[%d]", i, j)
			if catalog != nil && !kube.IsWildcard(name) {
				s := Selection(inf)
				s.Names, s.Exclude = []string{name}, nil
				_, err := catalog.Resolve(s)
				problems = append(problems, c.ProblemsAt(at, err)...)
				s.Exclude = inf.Exclude
				types, _ := catalog.Resolve(s) // a misspelt exclude takes nothing out
				for _, t := range types {
					list = append(list, needs(inf, at, t.Group, t.Resource)...)
				}
				continue
			}
			selected, err := kube.OfflineSelection(name, inf.Exclude, catalog)
			problems = append(problems, c.ProblemsAt(at, err)...)
			for _, gr := range selected {
				list = append(list, needs(inf, at, gr.Group, gr.Resource)...)
			}
		}
	}
	return list, problems
}

// rightsOf returns the rights of needs.
func rightsOf(list []Need) []kube.Right {
	rights := make([]kube.Right, len(list))
	for i, n := range list {
		rights[i] = n.Right
	}
	return rights
}

// Selection returns what an informer selects.
func Selection(inf *config.Informer) kube.Selection {
	return kube.Selection{
		Names: inf.Resources, Exclude: inf.Exclude,
		Namespaced: len(inf.Namespaces) > 0 || inf.NamespaceSelector != "",
	}
}

// Namespaces returns the namespaces of an informer, or "" alone for all.
func Namespaces(inf *config.Informer) []string {
	if len(inf.Namespaces) == 0 {
		return []string{""}
	}
	return inf.Namespaces
}
