package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print the token of a bridge's admin server",
		Long: `token prints what the admin server of a bridge asks for: the status page in its form, and
others as a bearer token. Who has it may read /status, /tail, /object and profiles, and give
commands (bridge pause, reload and so on).

It is admin.tokenFile of the configuration, or admin-token in the state directory, which the bridge
has made.

Exit codes: 0, or 2 when there is no token.`,
		Example: `  kubectl exec bridge-0 -- bridge token
  curl --header "Authorization: Bearer $(bridge token)" 127.0.0.1:8080/status`,
		Args: cobra.NoArgs,
	}
	c := &Client{Settings: NewSettings(cmd, "state.dir")}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		token, err := c.Token()
		if err != nil {
			return Refused(err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), token)
		return nil
	}
	return cmd
}
