package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/cli/terminal"
)

func newValidateCommand() *cobra.Command {
	var print, live bool
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration and report every problem",
		Long: `validate reads a configuration as 'bridge run' would, with its BRIDGE_ variables, and
reports every problem at once: file, line, key, what is wrong, and what was probably meant. It
contacts neither the API server nor a broker, and reads no file with credentials, so it can run in
CI. Whether a resource exists and the bridge may watch it, it does not know.

With --live it asks: the API server whether it has the resources and allows to list and watch them,
and the brokers whether they can be reached, take the credentials, and have the stream or the topics
as the configuration wants them. It changes nothing and sends no event, so it can't know whether the
broker's user may write.

Exit codes: 0 when the configuration is good, 2 when it is not.`,
		Example: `  bridge validate bridge.yaml
  bridge validate bridge.yaml --live      and the cluster and the brokers that it names
  bridge validate bridge.yaml --print     the whole configuration with defaults, secrets masked
  bridge validate --print                 what 'bridge run' does without a file`,
		Args: cobra.MaximumNArgs(1),
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context")
	cmd.Flags().BoolVar(&live, "live", false, "ask the API server and the brokers too")
	cmd.Flags().BoolVar(&print, "print", false, "print the whole configuration as YAML, with "+
		"defaults filled in and secrets masked")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if cmd.Flags().Changed("config") {
				return errors.New("give the file once, as an argument or with --config")
			}
			s.File = args[0]
		}
		c, err := s.Load()
		if err != nil {
			return err
		}
		if print {
			fmt.Fprint(cmd.OutOrStdout(), c)
			return nil
		}
		printWarnings(cmd, app.Warnings(c))
		var found string
		if live {
			log := NewLogger(config.Log{Level: "warn", Format: c.Log.Format}, cmd.ErrOrStderr())
			l, err := app.CheckLive(cmd.Context(), c, log)
			if err != nil {
				return Refused(err)
			}
			printWarnings(cmd, l.Warnings)
			found = fmt.Sprintf("; %s has the resources and allows to read them (%s), the "+
				"brokers are as they have to be",
				l.Host, terminal.Amount(l.Rights, "right"))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is good: %s, %s%s\n",
			cmp.Or(s.File, "the default configuration"),
			terminal.Amount(len(c.Informers), "informer"), terminal.Amount(len(c.Sinks), "sink"), found)
		return nil
	}
	return cmd
}

func printWarnings(cmd *cobra.Command, list []error) {
	for _, warning := range list {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
	}
}
