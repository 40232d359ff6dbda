package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/cli/terminal"
)

// mostRoutes bounds what validate prints.
const mostRoutes = 40

// printRoutes prints which way the events of each resource go: the fields of the cluster that a
// configuration names are filled in, others stay as they are written.
func printRoutes(w io.Writer, c *config.Config) error {
	table := terminal.NewTable(w)
	fmt.Fprintln(table, "RESOURCE\tINFORMER\tSINK\tTO")
	routes := 0
	for i := range c.Informers {
		informer := &c.Informers[i]
		for _, resource := range informer.Resources {
			for j := range c.Sinks {
				sink := &c.Sinks[j]
				if !feeds(informer, sink.Name) {
					continue
				}
				if routes++; routes <= mostRoutes {
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", resource, informer.Name, sink.Name,
						destination(c, informer, sink, resource))
				}
			}
		}
	}
	if routes > mostRoutes {
		fmt.Fprintf(table, "and %d more\n", routes-mostRoutes)
	}
	return table.Flush()
}

// feeds reports whether an informer sends to a sink: to all where it names none.
func feeds(informer *config.Informer, sink string) bool {
	return len(informer.Sinks) == 0 ||
		slices.ContainsFunc(informer.Sinks, func(f config.Binding) bool { return f.Name == sink })
}

// destination returns where a sink puts the events of a resource.
func destination(c *config.Config, informer *config.Informer, sink *config.Sink, name string) string {
	known := []string{"{informer}", informer.Name}
	if c.Cluster != "" {
		known = append(known, "{cluster}", c.Cluster)
	}
	if plural, _, _ := strings.Cut(name, "."); plural != "*" && !strings.ContainsAny(plural, "-!") {
		known = append(known, "{resource}", plural)
	}
	fill := strings.NewReplacer(known...)
	switch {
	case sink.NATS != nil:
		return "subject " + fill.Replace(sink.NATS.Subject)
	case sink.Kafka != nil:
		return "topic " + fill.Replace(sink.Kafka.Topic)
	case sink.HTTP != nil:
		return "endpoint"
	case sink.History != nil:
		return "history " + cmp.Or(sink.History.Dir, "in the state directory")
	case sink.File != nil:
		return "file " + sink.File.Path
	}
	return "standard output"
}
