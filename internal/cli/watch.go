package cli

import (
	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
)

func newWatchCommand(build Build) *cobra.Command {
	var selected selection
	var onlyChanges bool
	output := "auto"
	cmd := &cobra.Command{
		Use:   "watch [RESOURCE]...",
		Short: "Print changes on the terminal: a quick look",
		Long: `watch prints the changes of resources as they happen, until Ctrl-C. Resources are named as
kubectl names them, custom ones too; without a name it prints changes of every resource but Leases
and Events. It begins with the objects that exist.

It sends nothing, keeps its state in memory, and has no admin server unless --admin-address is
given. On a terminal it prints a short coloured line per event (NO_COLOR turns the colour off),
elsewhere structured CloudEvents, a line each.

With --config it watches what the configuration selects. Secrets are redacted as the configuration
says.

Exit codes: 0 after a clean stop, 1 when something failed while it ran, 2 when it could not start.`,
		Example: `  bridge watch                                     every resource
  bridge watch pods -n shop -l app=web
  bridge watch deployments.apps,services --watch-only
  bridge watch pods --filter 'object.status.phase == "Failed"'
  bridge watch secrets -o json | jq .manager`,
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster",
		"admin.address", "log.level", "log.format")
	selected.addFlags(cmd)
	cmd.Flags().BoolVar(&onlyChanges, "watch-only", false, "leave out the objects that exist")
	OutputFlag(cmd, &output, "auto", "short", "json")
	cmd.RunE = func(cmd *cobra.Command, resources []string) error {
		if err := CheckOutput(output, "auto", "short", "json"); err != nil {
			return err
		}
		load := func() (*config.Config, error) {
			c, err := s.Load()
			if err != nil {
				return nil, err
			}
			if c.Log.Level == "info" {
				c.Log.Level = "warn" // what is printed is the answer
			}
			printOnly(c, output, cmd.Flags().Changed("admin-address"))
			if onlyChanges {
				for i := range c.Informers {
					c.Informers[i].Snapshot = "never"
				}
			}
			return c, Refused(selected.apply(c, namesOf(resources)))
		}
		c, err := load()
		if err != nil {
			return err
		}
		r := &runner{cmd: cmd, build: build, source: app.NewSource(s.File, load), file: s.File != ""}
		return r.run(c)
	}
	return cmd
}

// printOnly changes a configuration so that it sends and keeps nothing.
func printOnly(c *config.Config, format string, keepAdmin bool) {
	const name = "stdout"
	sink := config.Default().Sinks[0] // for its other defaults
	sink.Name, sink.NATS, sink.Stdout = name, nil, &config.Stdout{Format: format}
	c.Sinks = []config.Sink{sink}
	for i := range c.Informers {
		binding := c.Informers[i].Sinks[0]
		binding.Name = name
		c.Informers[i].Sinks = []config.Binding{binding}
	}
	c.State.Mode, c.Standby.Enabled = "memory", false
	if !keepAdmin {
		c.Admin.Address = ""
	}
}
