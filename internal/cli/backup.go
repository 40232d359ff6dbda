package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history"
)

func newHistoryCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read a whole history, and report damage",
		Long: `check reads every table, each version of each object, and what the stream says about itself.
It changes nothing, and the writer need not stop.

Exit codes: 0 when everything can be read; 1 when something can't; 2 when there is no history.`,
		Example: `  bridge history check
  bridge history check --dir /var/lib/history`,
		Args: cobra.NoArgs,
	}
	o := historyFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		db, err := o.open()
		if errors.Is(err, history.ErrDamaged) {
			return Failed(err)
		}
		if err != nil {
			return err
		}
		defer db.Close()
		c, err := db.Check(cmd.Context())
		if err != nil {
			return Failed(err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "good: %s\n", checked(c))
		return nil
	}
	return cmd
}

func checked(c history.Checked) string {
	return fmt.Sprintf("%s of %s, %s", terminal.Amount(c.Versions, "version"),
		terminal.Amount(c.Objects, "object"), terminal.Amount(c.Keys, "key"))
}

func newBackupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup NEW-DIRECTORY",
		Short: "Copy a history, also while a bridge writes to it",
		Long: `backup copies a history into a new directory, and reads the copy as check does. The copy has
what was durable when it began. The directory appears when it is complete: what was interrupted is
in NEW-DIRECTORY.partial, and is begun again.

Exit codes: 0; 1 when the copy can't be made; 2 when there is no history.`,
		Example: `  bridge history backup /backup/history-monday`,
		Args:    cobra.ExactArgs(1),
	}
	o := historyFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := o.directory()
		if err != nil {
			return err
		}
		return copyHistory(cmd, dir, args[0])
	}
	return cmd
}

func newRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Copy a backup to where a bridge has its history",
		Long: `restore copies a backup to the directory of the history, which must not exist: stop the
bridge, and move what is there away. A bridge does not send again what its sink has stored since the
backup: read that from a stream with 'bridge archive'.

Exit codes: 0; 1 when the copy can't be made; 2 when there is no backup.`,
		Example: `  bridge history restore /backup/history-monday --dir /var/lib/bridge/state/history`,
		Args:    cobra.ExactArgs(1),
	}
	o := historyFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := o.directory()
		if err != nil {
			return err
		}
		return copyHistory(cmd, args[0], dir)
	}
	return cmd
}

func copyHistory(cmd *cobra.Command, from, to string) error {
	c, err := history.Copy(cmd.Context(), from, to)
	switch {
	case errors.Is(err, history.ErrNone), errors.Is(err, history.ErrForeign):
		return Refused(err)
	case err != nil:
		return Failed(err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", to, checked(c))
	return nil
}
