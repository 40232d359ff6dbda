package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/kube"
)

// rbacOptions are the flags of rbac.
type rbacOptions struct {
	kube.Account
	offline, wildcards bool
	output             string
}

func newRBACCommand() *cobra.Command {
	o := rbacOptions{}
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the smallest roles that a configuration needs",
		Long: `rbac prints what the API server has to allow for a configuration, as YAML for kubectl apply: list and watch on the resources that it
selects, and nothing else but to read which cluster it is (get on the namespace kube-system), and for a namespaceSelector list and watch
on namespaces. Informers with namespaces give a Role in each of them, others a ClusterRole; a fieldSelector of one metadata.name allows
that object only. The bindings are for a service account.

The API server is asked what the names of resources and "*" mean now. Roles made of that do not cover CRDs that are installed later:
print them again then, or keep "*" as it is written with --wildcards, which allows to read everything, what the configuration excludes
too. --offline asks nobody, and keeps "*" too; names then need their group (deployments.apps).

The Helm chart makes the same roles out of its values by itself, as --offline does. Where it can't (short names, variables), or where "*"
should be what it means now, --output helm-values prints the values that tell it the rights.

Exit codes: 0 when the roles are printed, 2 when the configuration or a name in it is wrong.`,
		Example: `  bridge rbac --config bridge.yaml | kubectl apply -f -
  bridge rbac --config bridge.yaml --namespace streaming --service-account bridge
  bridge rbac --config bridge.yaml --offline       in CI, without a cluster
  bridge rbac --config bridge.yaml --output helm-values > rights.yaml`,
		Args: cobra.NoArgs,
	}
	s := newSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context")
	cmd.Flags().StringVar(&o.Role, "name", "bridge", "name of the roles and of their bindings")
	cmd.Flags().StringVar(&o.Namespace, "namespace", "default", "namespace of the bridge's service account")
	cmd.Flags().StringVar(&o.ServiceAccount, "service-account", "bridge", "name of the bridge's service account")
	cmd.Flags().BoolVar(&o.offline, "offline", false, "ask no API server; implies --wildcards")
	cmd.Flags().BoolVar(&o.wildcards, "wildcards", false, `allow what "*" and "*.group" may ever mean, not what they mean now`)
	outputFlag(cmd, &o.output, "yaml", "helm-values")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkOutput(o.output, "yaml", "helm-values"); err != nil {
			return err
		}
		c, err := s.load()
		if err != nil {
			return err
		}
		c.Standby.Lease.Namespace = cmp.Or(c.Standby.Lease.Namespace, o.Namespace) // the pod's
		list, err := o.needs(cmd.Context(), c)
		if err != nil {
			return err
		}
		fmt.Fprint(cmd.OutOrStdout(), o.header(s.file, c), o.print(c, rightsOf(list)))
		return nil
	}
	return cmd
}

func (o *rbacOptions) needs(ctx context.Context, c *config.Config) ([]need, error) {
	var catalog *kube.Catalog
	if !o.offline {
		var err error
		if _, catalog, err = askServer(ctx, c); err != nil {
			return nil, refused(err)
		}
	}
	find := neededNow
	if o.offline || o.wildcards {
		find = neededEver
	}
	list, problems := find(c, catalog)
	return list, together(problems)
}

func (o *rbacOptions) print(c *config.Config, rights []kube.Right) string {
	if o.output == "helm-values" {
		return kube.RoleValues(rights, selectionDigest(c))
	}
	return kube.Roles(rights, o.Account)
}

// selectionDigest is the SHA-256 of all that the rights of a configuration depend on. The chart computes it of its values too, and
// refuses rights that were made for another selection.
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
		list[i] = selected{orNone(inf.Exclude), inf.FieldSelector, inf.NamespaceSelector, orNone(inf.Namespaces), orNone(inf.Resources)}
	}
	text, err := json.Marshal(list)
	if err != nil { // of texts never
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// orNone is a list that is [] in JSON when it is empty, and not null.
func orNone(list []string) []string { return append([]string{}, list...) }

// askServer asks what the API server of a configuration serves.
func askServer(ctx context.Context, c *config.Config) (*kube.Resolver, *kube.Catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
func (o *rbacOptions) header(file string, c *config.Config) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# What the bridge needs for %s. Beside it the bridge asks what the API server serves, which\n", cmp.Or(filepath.Base(file), "the default configuration"))
	out.WriteString("# every authenticated user may by default (ClusterRole system:discovery).\n")
	switch wild, excludes := uses(c); {
	case !wild:
	case !o.offline && !o.wildcards:
		out.WriteString("# Wildcards are what the API server serves now: print this again when a CRD was installed.\n")
	case excludes:
		out.WriteString("# Wildcards are as they are written: what exclude takes out can't be taken out of a role.\n")
	}
	return out.String()
}

// uses says whether a configuration has wildcards, and excludes something from them.
func uses(c *config.Config) (wildcards, excludes bool) {
	for i := range c.Informers {
		for _, name := range c.Informers[i].Resources {
			if kube.IsWildcard(name) {
				wildcards = true
				excludes = excludes || len(c.Informers[i].Exclude) > 0
			}
		}
	}
	return wildcards, excludes
}
