// Package rights finds what the informers of a configuration select, and which rights at the API
// server that needs.
//
// In: a configuration, and what the API server serves. Out: the rights as roles (bridge rbac), and
// for a running bridge the resources that it may not list (ListCheck).
package rights

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

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

// RolesOptions of Roles.
type RolesOptions struct {
	kube.Account
	// Offline asks no API server; it implies Wildcards.
	Offline bool
	// Wildcards allows what "*" and "*.group" may ever mean, not what they mean now.
	Wildcards bool
	// HelmValues gives values for the chart in place of manifests.
	HelmValues bool
}

// Roles returns the smallest roles that a configuration needs, as YAML. file is where the
// configuration comes from, "" for none. An error is about the configuration, or the API server
// can't be asked.
func Roles(ctx context.Context, c *config.Config, file string, o RolesOptions) (string, error) {
	c.Standby.Lease.Namespace = cmp.Or(c.Standby.Lease.Namespace, o.Namespace) // the pod's
	list, err := o.needs(ctx, c)
	if err != nil {
		return "", err
	}
	return o.header(file, c) + o.print(c, rightsOf(list)), nil
}

func (o *RolesOptions) needs(ctx context.Context, c *config.Config) ([]Need, error) {
	var catalog *kube.Catalog
	if !o.Offline {
		var err error
		if _, catalog, err = askServer(ctx, c); err != nil {
			return nil, err
		}
	}
	find := Needed
	if o.Offline || o.Wildcards {
		find = neededEver
	}
	list, problems := find(c, catalog)
	return list, errors.Join(problems...)
}

func (o *RolesOptions) print(c *config.Config, rights []kube.Right) string {
	if o.HelmValues {
		return kube.RoleValues(rights, selectionDigest(c))
	}
	return kube.Roles(rights, o.Account)
}

// selectionDigest returns the SHA-256 of all that the rights of a configuration depend on. The
// chart computes it of its values too, and refuses rights that were made for another selection.
func selectionDigest(c *config.Config) string {
	type selected struct { // in the order of the keys: so sorts the chart
		Exclude           []string `json:"exclude"`
		FieldSelector     string   `json:"fieldSelector"`
		NamespaceSelector string   `json:"namespaceSelector"`
		Namespaces        []string `json:"namespaces"`
		Resources         []string `json:"resources"`
	}
	list := make([]selected, len(c.Informers))
	for i := range c.Informers {
		inf := &c.Informers[i]
		list[i] = selected{
			orNone(inf.Exclude), inf.FieldSelector, inf.NamespaceSelector,
			orNone(inf.Namespaces), orNone(inf.Resources),
		}
	}
	text, err := json.Marshal(list)
	if err != nil { // of texts never
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// orNone returns a list that is [] in JSON when it is empty, and not null.
func orNone(list []string) []string { return append([]string{}, list...) }

// askTimeout bounds what the API server is asked.
const askTimeout = 30 * time.Second

// askServer asks what the API server of a configuration serves.
func askServer(ctx context.Context, c *config.Config) (*kube.Resolver, *kube.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	k := &c.Kubernetes
	rc, _, err := kube.RESTConfig(k.Kubeconfig, k.Context, k.QPS, k.Burst)
	if err != nil {
		return nil, nil, err
	}
	resolver, err := kube.NewResolver(rc)
	if err != nil {
		return nil, nil, err
	}
	catalog, err := resolver.Discover(ctx)
	return resolver, catalog, err
}

// header says what the roles are, and what they do not say.
func (o *RolesOptions) header(file string, c *config.Config) string {
	var out strings.Builder
	name := "the default configuration"
	if file != "" {
		name = filepath.Base(file)
	}
	fmt.Fprintf(&out, "# What the bridge needs for %s. Beside it the bridge asks what the API "+
		"server serves, which\n", name)
	out.WriteString("# every authenticated user may by default (ClusterRole system:discovery).\n")
	wild, excludes, noSecrets := uses(c)
	switch {
	case !wild:
	case !o.Offline && !o.Wildcards:
		out.WriteString("# Wildcards are what the API server serves now: print this again when a " +
			"CRD was installed.\n")
	case excludes:
		out.WriteString("# Wildcards are as they are written. What exclude takes out of groups other " +
			"than the core group\n# can't be taken out of a role: rights that were printed without " +
			o.wildcardsFlag() + " are exact.\n")
	}
	if noSecrets && (o.Offline || o.Wildcards) {
		fmt.Fprintf(&out, "# \"*\" without Secrets names the resources of the core group, and the "+
			"groups of %s.\n", o.whoseGroups())
	}
	return out.String()
}

func (o *RolesOptions) wildcardsFlag() string {
	if o.Offline {
		return "--offline"
	}
	return "--wildcards"
}

// whoseGroups says which groups kube.OfflineSelection names.
func (o *RolesOptions) whoseGroups() string {
	if o.Offline {
		return "Kubernetes\n# itself: those of CRDs are not in it"
	}
	return "the API\n# server now: print this again when a CRD was installed"
}

// uses reports whether a configuration has wildcards, excludes something from them, and excludes
// Secrets from "*".
func uses(c *config.Config) (wildcards, excludes, noSecrets bool) {
	for i := range c.Informers {
		inf := &c.Informers[i]
		for _, name := range inf.Resources {
			if kube.IsWildcard(name) {
				wildcards = true
				excludes = excludes || len(inf.Exclude) > 0
				noSecrets = noSecrets || name == "*" && kube.ExcludesSecrets(inf.Exclude)
			}
		}
	}
	return wildcards, excludes, noSecrets
}
