package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
)

// selection is what a quick look selects, as kubectl's arguments and flags do.
type selection struct {
	namespaces    []string
	everywhere    bool
	labelSelector string
	fieldSelector string
	filter        string
}

func (s *selection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&s.namespaces, "namespace", "n", nil,
		"only objects in this namespace; may be repeated")
	cmd.Flags().BoolVarP(&s.everywhere, "all-namespaces", "A", false,
		"objects of all namespaces, and those of none; the default")
	cmd.Flags().StringVarP(&s.labelSelector, "selector", "l", "",
		"only objects with these labels: app=web,tier in (a,b)")
	cmd.Flags().StringVar(&s.fieldSelector, "field-selector", "",
		"only objects with these fields: spec.nodeName=n1")
	cmd.Flags().StringVar(&s.filter, "filter", "",
		`only changes for which this CEL expression holds: op == "deleted"`)
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// apply changes a configuration so that it selects this. Resources replace its informers.
func (s *selection) apply(c *config.Config, resources []string) error {
	if len(resources) > 0 {
		c.Informers = []config.Informer{informerOf(c, resources)}
	}
	for i := range c.Informers {
		inf := &c.Informers[i]
		if len(s.namespaces) > 0 {
			inf.Namespaces, inf.NamespaceSelector = s.namespaces, ""
		}
		if s.everywhere {
			inf.Namespaces, inf.NamespaceSelector = nil, ""
		}
		inf.LabelSelector = cmp.Or(s.labelSelector, inf.LabelSelector)
		inf.FieldSelector = cmp.Or(s.fieldSelector, inf.FieldSelector)
		inf.Filter = cmp.Or(s.filter, inf.Filter)
	}
	// Checked apart from the file: its lines are not where these values come from.
	selected := config.Default()
	selected.Informers, selected.Sinks = c.Informers, c.Sinks
	return selected.Validate()
}

// namesOf splits arguments at commas: kubectl takes pods,services too.
func namesOf(args []string) (names []string) {
	for _, arg := range args {
		names = append(names, strings.Split(arg, ",")...)
	}
	return names
}

// informerOf returns an informer of resources that feeds every sink, with the defaults of a
// configuration that says nothing else.
func informerOf(c *config.Config, resources []string) config.Informer {
	inf := config.Default().Informers[0]
	binding := inf.Sinks[0]
	inf.Name, inf.Resources, inf.Exclude, inf.Sinks = "watch", resources, nil, nil
	for i := range c.Sinks {
		binding.Name = c.Sinks[i].Name
		inf.Sinks = append(inf.Sinks, binding)
	}
	return inf
}
