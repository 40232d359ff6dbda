package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
)

func newValidateCommand() *cobra.Command {
	var print bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration and say everything that is wrong with it",
		Long: `validate reads a configuration as 'bridge run' would, with its BRIDGE_ variables, and reports every problem at once: file, line,
key, what is wrong, and what was probably meant. It contacts neither the API server nor a broker, and reads no file with
credentials, so it can run in CI. Whether a resource exists and the bridge may watch it, it does not know.

Exit codes: 0 when the configuration is good, 2 when it is not.`,
		Example: `  bridge validate --config bridge.yaml
  bridge validate --config bridge.yaml --print     the whole configuration with defaults, secrets masked
  bridge validate --print                          what 'bridge run' does without a file`,
		Args: cobra.NoArgs,
	}
	s := newSettings(cmd)
	cmd.Flags().BoolVar(&print, "print", false, "print the whole configuration as YAML, with defaults filled in and secrets masked")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := s.load()
		if err != nil {
			return err
		}
		if print {
			fmt.Fprint(cmd.OutOrStdout(), c)
			return nil
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is good: %s, %s\n", cmp.Or(s.file, "the default configuration"),
			count(len(c.Informers), "informer"), count(len(c.Sinks), "sink"))
		return nil
	}
	return cmd
}
