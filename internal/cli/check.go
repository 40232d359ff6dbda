package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/store"
)

func newCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read everything that is remembered, and report what is damaged",
		Long: `check reads every table of the database, also the parts that are not in use, each record
and object of each unit, and each undelivered event. It reports what cannot be read, and changes
nothing. A torn end of the write-ahead log is what a crash leaves, and no damage.

Exit codes: 0 when everything can be read, 1 when something can't, 2 when there is no state or a
bridge runs with it.`,
		Example: `  bridge statedir check --state-dir /var/lib/bridge
  bridge statedir check && bridge run`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "state.dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		state, err := openState(cmd, s)
		if err != nil {
			return err
		}
		defer state.inspector.Close()
		t := terminal.NewTable(cmd.OutOrStdout())
		row := func(what, found string, err error) error {
			result := "good"
			if err != nil {
				result = "damaged"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", what, result, found)
			return err
		}
		fmt.Fprintln(t, "PART\tSTATE\tFOUND")
		keys, err := state.inspector.Check()
		errs := []error{row("database", terminal.Amount(int(keys), "key"), err)}
		units, err := state.inspector.Units()
		errs = append(errs, err)
		for _, u := range units {
			found, err := checkUnit(u)
			errs = append(errs, row(u.Name, found, err))
		}
		found, err := checkUndelivered(filepath.Dir(state.options.Dir))
		errs = append(errs, row("undelivered", found, err), t.Flush())
		return Failed(errors.Join(errs...))
	}
	return cmd
}

// checkUnit reads all of a unit.
func checkUnit(u store.Unit) (found string, err error) {
	_, positionErr := u.Position()
	usage, usageErr := u.Usage()
	readable, objectsErr := u.Check()
	found = fmt.Sprintf("%s, %s, %s pending", terminal.Amount(readable, "object"),
		terminal.Amount(usage.Tombstones, "tombstone"), terminal.Amount(usage.Waiting, "change"))
	return found, unitProblems(u, usage, positionErr, usageErr, objectsErr)
}

// checkUndelivered reads all undelivered events of a state directory.
func checkUndelivered(stateDir string) (found string, err error) {
	entries, err := refused.List(filepath.Join(stateDir, "undelivered"))
	errs := []error{err}
	for i := range entries {
		if _, err := entries[i].Parse(); err != nil && !errors.Is(err, refused.ErrIncomplete) {
			errs = append(errs, fmt.Errorf("undelivered event of sink %s: %w", entries[i].Sink, err))
		}
	}
	return terminal.Amount(len(entries), "event"), errors.Join(errs...)
}
