package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

// kindsOfTargets are what can be paused.
var kindsOfTargets = []string{"informer", "sink"}

func newPauseCommand() *cobra.Command {
	return newSwitchCommand("pause", "Pause an informer or a sink of a running bridge",
		`pause informer NAME stops reading: the watches of the informer are closed, and what was read is
sent. It continues from there; what the API server has forgotten by then (it keeps minutes) is a
gap, reported and healed as always.

pause sink NAME sends nothing to the sink. What is for it waits, in memory and then on disk, as
while its broker is unavailable. Other sinks continue.

While something is paused, /readyz says so. A pause ends with `+"`bridge resume`"+`, and when the
bridge is restarted.`,
		`  bridge pause informer workloads
  bridge pause sink lake`)
}

func newResumeCommand() *cobra.Command {
	return newSwitchCommand("resume", "Resume an informer or a sink of a running bridge",
		`resume ends a pause: an informer reads on from where it stood, a sink is sent what has waited,
in order.`,
		`  bridge resume informer workloads
  bridge resume sink lake`)
}

// newSwitchCommand is pause or resume.
func newSwitchCommand(action, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: action + " informer|sink NAME", Short: short,
		Long: long + Help, Example: example, Args: cobra.ExactArgs(2),
	}
	c := New(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] != "informer" && args[0] != "sink" {
			return fmt.Errorf("want informer or sink, got %q", args[0])
		}
		return c.Do(cmd, args[0]+"s/"+url.PathEscape(args[1])+"/"+action, struct{}{})
	}
	cmd.ValidArgsFunction = func(
		_ *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return kindsOfTargets, cobra.ShellCompDirectiveNoFileComp
		case 1:
			return c.Names(args[0]), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func newSnapshotCommand() *cobra.Command {
	var what struct {
		Resource  string `json:"resource,omitempty"`
		Namespace string `json:"namespace,omitempty"`
		Selector  string `json:"selector,omitempty"`
		Sink      string `json:"sink,omitempty"`
	}
	cmd := &cobra.Command{
		Use:   "snapshot INFORMER",
		Short: "Make a running bridge send the objects of an informer again",
		Long: `snapshot sends every object that an informer knows again: as type synced, with initial, and
with an id that no event had before (<uid>/<resourceVersion>/sync/<round>), so that neither
JetStream nor a consumer takes it for a repeat. Each comes in order with the changes of its object;
watches continue, and no list is read. Memory stays bounded: what does not fit waits.

Operations and filters of the informer and its sinks hold for it (operation: synced). A consumer
that has lost its state learns in this way which objects exist; what does not come was deleted.

The command returns when it has begun; the log says when all of it is queued. A restart breaks it
off.` + Help,
		Example: `  bridge snapshot workloads
  bridge snapshot workloads --resource deployments.apps --namespace shop
  bridge snapshot workloads --selector app=web --sink lake`,
		Args: cobra.ExactArgs(1),
	}
	c := New(cmd)
	cmd.Flags().StringVar(&what.Resource, "resource", "", "only this resource of the informer, "+
		"as /status shows it: pods, deployments.apps")
	cmd.Flags().StringVarP(&what.Namespace, "namespace", "n", "", "only objects in this namespace")
	cmd.Flags().StringVarP(&what.Selector, "selector", "l", "", "only objects with these labels, "+
		"as kubectl takes it")
	cmd.Flags().StringVar(&what.Sink, "sink", "", "only to this sink; none: to all of the informer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.Do(cmd, "informers/"+url.PathEscape(args[0])+"/snapshot", what)
	}
	cmd.ValidArgsFunction = func(
		_ *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.Names("informer"), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func newLogLevelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log-level LEVEL",
		Short: "Set the level of a running bridge's log",
		Long: `log-level sets the least severe level that the log of a running bridge has: debug, info,
warn or error. It ends with a restart, or when log.level of the configuration is changed.` + Help,
		Example:   `  bridge log-level debug`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: LogLevels,
	}
	c := New(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.Do(cmd, "log-level", map[string]string{"level": args[0]})
	}
	return cmd
}

func newReloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running bridge read its configuration now",
		Long: `reload has a running bridge read its configuration again, at once, and says what has
changed. It does so by itself when the file changes (key reloadInterval), and at SIGHUP.

Informers and sinks that have not changed run on. A file with a mistake is refused as a whole, with
every problem and its line, and the configuration of before stays; so is one that changes what only
a restart can: the cluster, the state directory, the admin server.` + Help,
		Example: `  bridge validate --config bridge.yaml && bridge reload --config bridge.yaml`,
		Args:    cobra.NoArgs,
	}
	c := New(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.Do(cmd, "reload", struct{}{}) }
	return cmd
}
