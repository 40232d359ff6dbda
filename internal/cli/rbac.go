package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app/rights"
)

func newRBACCommand() *cobra.Command {
	var o rights.RolesOptions
	output := "yaml"
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the smallest roles that a configuration needs",
		Long: `rbac prints what the API server has to allow for a configuration, as YAML for kubectl
apply: list and watch on the resources that it selects, and nothing else but to read which cluster
it is (get on the namespace kube-system), for a namespaceSelector list and watch on namespaces, and
with standby its two Leases.
Informers with namespaces give a Role in each of them, others a ClusterRole; a fieldSelector of one
metadata.name allows that object only. The bindings are for a service account.

The API server is asked what the names of resources and "*" mean now. Roles made of that do not
cover CRDs that are installed later: print them again then, or keep "*" as it is written with
--wildcards. A role can't subtract, so that allows to read what the configuration excludes from
"*", too, but for Secrets: "*" without them names the resources of the core group, and the groups
that there are now. --offline makes no request, and keeps "*" too; names then need their group
(deployments.apps), and "*" without Secrets has no groups of CRDs.

The Helm chart makes the same roles out of its values by itself, as --offline does. Where it can't
(short names, variables), or where "*" should be what it means now, --output helm-values prints the
values with the rights.

Exit codes: 0 when the roles are printed, 2 when the configuration or a name in it is wrong.`,
		Example: `  bridge rbac --config bridge.yaml | kubectl apply -f -
  bridge rbac --config bridge.yaml --namespace streaming --service-account bridge
  bridge rbac --config bridge.yaml --offline       in CI, without a cluster
  bridge rbac --config bridge.yaml --output helm-values > rights.yaml`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context")
	cmd.Flags().StringVar(&o.Role, "name", "bridge", "name of the roles and of their bindings")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the bridge's "+
		"service account")
	cmd.Flags().StringVar(&o.ServiceAccount, "service-account", "bridge", "name of the bridge's "+
		"service account")
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "ask no API server; implies --wildcards")
	cmd.Flags().BoolVar(&o.Wildcards, "wildcards", false,
		`allow what "*" and "*.group" may ever mean, not what they mean now`)
	OutputFlag(cmd, &output, "yaml", "helm-values")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "yaml", "helm-values"); err != nil {
			return err
		}
		c, err := s.Load()
		if err != nil {
			return err
		}
		o.HelmValues = output == "helm-values"
		text, err := rights.Roles(cmd.Context(), c, s.File, o)
		if err != nil {
			return Refused(err)
		}
		fmt.Fprint(cmd.OutOrStdout(), text)
		return nil
	}
	return cmd
}
