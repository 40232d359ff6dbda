package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Command is bridge statedir.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "statedir",
		Short: "Inspect or reset the saved state of a stopped bridge",
		Long: `statedir shows what a bridge remembers over a restart, and makes it forget: for each
resource of each informer (a unit: pods/pods, apps/deployments.apps, or apps/deployments.apps/shop
for one namespace) the position where its watch resumes, the last version of each object that was
settled, and the changes that wait on disk for a sink.

The directory is the one that 'bridge run' uses: the key state.dir of the configuration, or
--state-dir. It belongs to one process, so a bridge that runs with it has to be stopped first; what
a running one does, it reports at /status. ls and get only read, and need neither the API server nor
a broker. They do not look whether a configuration still has an informer.

Damage is reported and left as it is.`,
		Example: `  bridge statedir ls --state-dir /var/lib/bridge
  bridge statedir get pods shop/web-0
  bridge statedir check
  bridge statedir reset pods --keep-objects`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newListCommand(), newGetCommand(), newCheckCommand(),
		newResetCommand())
	return cmd
}

// openedState is the state of a stopped bridge, to be read.
type openedState struct {
	inspector *store.Inspector
	options   statedb.Options
}

// openState opens the database in state.dir. Close it: no bridge can start until then.
func openState(cmd *cobra.Command, s *Settings) (*openedState, error) {
	c, err := s.LoadState()
	if err != nil {
		return nil, err
	}
	c.Log.Level = "error" // of the database, when it can't continue
	o := statedb.Options{Dir: app.StateDir(c), Log: NewLogger(c.Log, cmd.ErrOrStderr())}
	in, err := store.Inspect(o)
	if errors.Is(err, statedb.ErrNoState) {
		err = fmt.Errorf("%w; %s", err, StateDirHint(c.State.Dir))
	}
	return &openedState{in, o}, Refused(err)
}
