package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

func newResetCommand() *cobra.Command {
	var yes, keepObjects bool
	cmd := &cobra.Command{
		Use:   "reset UNIT",
		Short: "Reset the saved state of a resource",
		Long: `reset deletes the saved state of one unit (a resource of an informer) in the state
directory of a stopped bridge. It shows what will be deleted, and asks.

                 without --keep-objects           with --keep-objects
  deletes        position, objects, backlog       position
  next start     a first snapshot: every object   sends the backlog, lists, and sends
                 as added, with initial           exactly what differs, as inferred
  deletes since  are not noticed                  are noticed
  gap event      forgotten                        interrupted
  ids            of a new epoch: nobody takes     as usual
                 them for repeats
  use it when    a sink lost what it had; an      you doubt that the bridge has seen
                 etcd was restored without        everything
                 --bump-revision; a record
                 cannot be read

To send every object to a sink again, no reset is needed: 'bridge snapshot' does it on a running
bridge.

With snapshot: never there is no list: neither form sends what exists, and the unit continues with
changes after its start.

UNIT is a name that 'bridge statedir ls' lists, or an unambiguous part of it: pods for pods/pods.
Other units are not touched. A reset deletes all of it or, when it fails, nothing. It cannot repair
a damaged database.

Exit codes: 0 when it was reset, 1 when it failed or you answered no, 2 when there is no such unit,
no state, a bridge that uses it, or no terminal to ask on.`,
		Example: `  bridge statedir reset pods                             everything again
  bridge statedir reset apps/deployments.apps --keep-objects
  bridge statedir reset old-informer/jobs.batch --yes    without a question, for scripts`,
		Args: cobra.ExactArgs(1),
	}
	s := NewSettings(cmd, "state.dir")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&keepObjects, "keep-objects", false, "forget only the position: the next "+
		"start lists, and sends what differs")
	cmd.ValidArgsFunction = completeUnits(s)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plan, err := planReset(cmd, s, args[0], keepObjects)
		if err != nil {
			return err
		}
		if !yes {
			fmt.Fprint(cmd.ErrOrStderr(), plan)
			if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
				return err
			}
		}
		if err := store.Reset(plan.state, plan.unit, keepObjects); err != nil {
			return resetError(err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s has forgotten %s\n", plan.unit, plan.forgotten())
		return nil
	}
	return cmd
}

// resetError is refused when a bridge was started while the question stood.
func resetError(err error) error {
	if errors.Is(err, statedb.ErrInUse) {
		return Refused(err)
	}
	return Failed(err)
}

// resetPlan is what a reset is about to forget.
type resetPlan struct {
	state       statedb.Options
	unit        string
	position    string
	usage       store.Usage
	keepObjects bool
}

// planReset looks at what there is, and lets go of the directory: a bridge must be able to start
// while a question waits for its answer.
func planReset(
	cmd *cobra.Command, s *Settings, name string, keepObjects bool,
) (p resetPlan, err error) {
	state, err := openState(cmd, s)
	if err != nil {
		return p, err
	}
	defer state.inspector.Close()
	unit, err := findUnit(state.inspector, name)
	if err != nil {
		return p, err
	}
	p = resetPlan{state: state.options, unit: unit.Name, position: "none", keepObjects: keepObjects}
	position, err := unit.Position()
	switch {
	case errors.Is(err, statedb.ErrDamaged):
		return p, Failed(err)
	case err != nil:
		p.position = "one that can't be understood"
	case position.Version != "":
		p.position = fmt.Sprintf("%s, saved %s", position.Version,
			position.Time.UTC().Format(time.RFC3339))
	}
	p.usage, err = unit.Usage()
	return p, Failed(err)
}

// String is what is shown before the question.
func (p resetPlan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s in %s\n  position: %s\n  objects:  %s\n  waiting:  %s\n", p.unit,
		p.state.Dir, p.position, p.objects(), p.waiting())
	if p.keepObjects {
		s.WriteString("Its position will be forgotten. The next start lists, and sends what " +
			"differs from the objects.\n")
	} else {
		s.WriteString("All of it will be forgotten. The next start sends every object as added, " +
			"and does not notice what was deleted until then.\n")
	}
	if p.usage.Waiting > 0 && !p.keepObjects {
		s.WriteString("Pending changes will never be sent: run a bridge until it has sent it, or use " +
			"--keep-objects.\n")
	}
	return s.String()
}

func (p resetPlan) waiting() string { return terminal.Amount(p.usage.Waiting, "change") }

func (p resetPlan) objects() string {
	text := terminal.Amount(p.usage.Objects, "object") + ", " + terminal.Amount(p.usage.Tombstones,
		"tombstone")
	if p.usage.Damaged > 0 {
		text += ", " + terminal.Amount(p.usage.Damaged, "record") + " that can't be understood"
	}
	return text
}

// forgotten is what is printed afterwards.
func (p resetPlan) forgotten() string {
	if p.keepObjects {
		return fmt.Sprintf("its position (%s); it keeps %s, %s waiting", p.position, p.objects(),
			p.waiting())
	}
	return fmt.Sprintf("its position (%s), %s, %s waiting", p.position, p.objects(), p.waiting())
}

// confirm asks, and is an error for every answer but yes.
func confirm(in io.Reader, out io.Writer) error {
	if file, ok := in.(*os.File); !ok || !terminal.Is(file) {
		return Refused(errors.New("nothing was changed: there is no terminal to ask on, say --yes"))
	}
	fmt.Fprint(out, "Continue? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return Failed(fmt.Errorf("nothing was changed: read the answer: %w", err))
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return Failed(errors.New("nothing was changed"))
	}
}
