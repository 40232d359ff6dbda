package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// OutputFlag adds --output with its values.
func OutputFlag(cmd *cobra.Command, output *string, values ...string) {
	cmd.Flags().StringVarP(output, "output", "o", values[0], "one of "+strings.Join(values, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values,
		cobra.ShellCompDirectiveNoFileComp))
}

// CheckOutput refuses a value of --output that is none of its values.
func CheckOutput(output string, values ...string) error {
	if slices.Contains(values, output) {
		return nil
	}
	return fmt.Errorf("--output %q: want one of %s", output, strings.Join(values, ", "))
}
