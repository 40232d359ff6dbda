package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// newStateDirCommand makes bridge statedir.
func newStateDirCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "statedir",
		Short: "Inspect, copy or reset the saved state of a bridge",
		Long: `statedir shows what a bridge remembers over a restart, and makes it forget: for each
resource of each informer (a unit: pods/pods, apps/deployments.apps, or apps/deployments.apps/shop
for one namespace) the position where its watch resumes, the last version of each object that was
settled, and the changes that wait on disk for a sink.

The directory is the one that 'bridge run' uses: the key state.dir of the configuration, or
--state-dir. It belongs to one process, so a bridge that runs with it has to be stopped first; what
a running one does, it reports at /status. Only backup works beside it. ls and get only read, and
need neither the API server nor a broker. They do not look whether a configuration still has an
informer.

Damage is reported and left as it is.`,
		Example: `  bridge statedir ls --state-dir /var/lib/bridge
  bridge statedir get pods shop/web-0
  bridge statedir check
  bridge statedir reset pods --keep-objects`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newListCommand(), newGetCommand(), newCheckCommand(), newResetCommand(),
		newStateBackupCommand(), newStateRestoreCommand())
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

func newListCommand() *cobra.Command {
	output := "table"
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List what is remembered, by unit",
		Long: `ls lists the state directory: its path, the format version of what is in it, the uid of the
cluster's namespace kube-system, its size on disk; and for each unit

  watermark   the resourceVersion from which its watch resumes, and when it was saved; none: it will begin with a list
  objects     how many objects it knows
  tombstones  how many deleted ones it still remembers, until the watermark has passed them
  bodies      what the objects' JSON takes, as stored: compressed
  records     what their uids and versions take
  waiting     the changes that lie on disk until all sinks have them
  scope       its selectors when it last ran

It reads everything once, a few seconds for a million objects.

Exit codes: 0, 1 when something can't be read, 2 when there is no state or a bridge runs with it.`,
		Example: `  bridge statedir ls
  bridge statedir ls --config bridge.yaml
  bridge statedir ls --output json | jq '.units[] | select(.watermark == null) | .name'`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "state.dir")
	OutputFlag(cmd, &output, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		state, err := openState(cmd, s)
		if err != nil {
			return err
		}
		defer state.inspector.Close()
		report, problems := listState(state.inspector)
		if output == "json" {
			err = terminal.PrintJSON(cmd.OutOrStdout(), report)
		} else {
			err = report.writeTable(cmd.OutOrStdout())
		}
		return Failed(errors.Join(err, problems))
	}
	return cmd
}

// stateReport is the output of ls as JSON.
type stateReport struct {
	Directory string       `json:"directory"`
	Format    string       `json:"format"`
	Cluster   string       `json:"cluster"` // uid of kube-system
	DiskBytes int64        `json:"diskBytes"`
	Units     []unitReport `json:"units"`
}

type unitReport struct {
	Name         string     `json:"name"`
	Watermark    *watermark `json:"watermark"` // null: begins with a list
	Objects      int        `json:"objects"`
	Tombstones   int        `json:"tombstones"`
	BodyBytes    int64      `json:"bodyBytes"`
	RecordBytes  int64      `json:"recordBytes"`
	Waiting      int        `json:"waiting"`
	WaitingBytes int64      `json:"waitingBytes"`
	Scope        string     `json:"scope"`
	Problem      string     `json:"problem,omitempty"`
}

type watermark struct {
	Version resource.Version `json:"version"`
	Saved   time.Time        `json:"saved"`
}

// listState reads everything. What can't be read is left out of the report, and named in the error.
func listState(in *store.Inspector) (stateReport, error) {
	summary, summaryErr := in.Summary()
	units, unitsErr := in.Units()
	report := stateReport{
		Directory: summary.Dir, Format: summary.Format, Cluster: summary.Cluster,
		DiskBytes: summary.DiskBytes, Units: []unitReport{},
	}
	errs := []error{summaryErr, unitsErr}
	for _, u := range units {
		r, err := reportUnit(u)
		report.Units = append(report.Units, r)
		errs = append(errs, err)
	}
	return report, errors.Join(errs...)
}

func reportUnit(u store.Unit) (unitReport, error) {
	position, positionErr := u.Position()
	usage, usageErr := u.Usage()
	r := unitReport{
		Name: u.Name, Objects: usage.Objects, Tombstones: usage.Tombstones,
		BodyBytes: usage.BodyBytes, RecordBytes: usage.RecordBytes, Waiting: usage.Waiting,
		WaitingBytes: usage.WaitingBytes, Scope: u.Scope,
	}
	if position.Version != "" {
		r.Watermark = &watermark{position.Version, position.Time.UTC()}
	}
	err := unitProblems(u, usage, positionErr, usageErr)
	if err != nil {
		r.Problem = err.Error()
	}
	return r, err
}

func (r stateReport) writeTable(w io.Writer) error {
	t := terminal.NewTable(w)
	fmt.Fprintf(t, "directory\t%s\nformat\t%s\ncluster\t%s\non disk\t%s\n\n", r.Directory, r.Format,
		cmp.Or(r.Cluster, "unknown"), terminal.Bytes(r.DiskBytes))
	if err := t.Flush(); err != nil { // the columns of what follows are others
		return err
	}
	if len(r.Units) == 0 {
		_, err := fmt.Fprintln(w, "No informer has any state.")
		return err
	}
	fmt.Fprintln(t, "UNIT\tWATERMARK\tSAVED\tOBJECTS\tTOMBSTONES\tBODIES\tRECORDS\tWAITING\tSCOPE")
	for _, u := range r.Units {
		version, saved := "none", "-"
		if u.Watermark != nil {
			version, saved = string(u.Watermark.Version), u.Watermark.Saved.Format(time.RFC3339)
		}
		waiting := "0"
		if u.Waiting > 0 {
			waiting = fmt.Sprintf("%d (%s)", u.Waiting, terminal.Bytes(u.WaitingBytes))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n",
			u.Name, version, saved, u.Objects, u.Tombstones, terminal.Bytes(u.BodyBytes),
			terminal.Bytes(u.RecordBytes), waiting, u.Scope)
	}
	return t.Flush()
}

func newStateBackupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup NEW-DIRECTORY",
		Short: "Copy the state, also while a bridge runs with it",
		Long: `backup copies the database of the state directory, and reads the copy. It has what was
settled when the copy began. NEW-DIRECTORY appears when it is complete. A history has a command of
its own: 'bridge history backup'. The folder undelivered has plain files.

Exit codes: 0; 1 when the copy can't be made; 2 when there is no state.`,
		Example: `  bridge statedir backup /backup/state-monday`,
		Args:    cobra.ExactArgs(1),
	}
	s := NewSettings(cmd, "state.dir")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return copyState(cmd, s, func(dir string) (from, to string) { return dir, args[0] })
	}
	return cmd
}

func newStateRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Copy a backup to where a bridge has its state",
		Long: `restore copies a backup to the state directory: stop the bridge, and move the folder db away
first. The bridge then continues where it was: events since the backup come again, with their ids;
where the API server has forgotten versions since, a gap is reported.

Exit codes: 0; 1 when the copy can't be made; 2 when there is no backup.`,
		Example: `  bridge statedir restore /backup/state-monday`,
		Args:    cobra.ExactArgs(1),
	}
	s := NewSettings(cmd, "state.dir")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return copyState(cmd, s, func(dir string) (from, to string) { return args[0], dir })
	}
	return cmd
}

// copyState copies the database between the state directory and another one.
func copyState(cmd *cobra.Command, s *Settings, ends func(dir string) (from, to string)) error {
	c, err := s.LoadState()
	if err != nil {
		return err
	}
	from, to := ends(app.StateDir(c))
	keys, err := statedb.Copy(cmd.Context(), from, to)
	switch {
	case errors.Is(err, statedb.ErrNoState), errors.Is(err, statedb.ErrForeign):
		return Refused(err)
	case err != nil:
		return Failed(err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", to, terminal.Amount(int(keys), "key"))
	return nil
}

// findUnit finds the unit that is meant: by its name, else by what of it distinguishes it from the
// others.
func findUnit(in *store.Inspector, meant string) (store.Unit, error) {
	units, err := in.Units()
	if err != nil {
		return store.Unit{}, Failed(err)
	}
	for _, matches := range []func(name, meant string) bool{
		isUnit, isResource,
		isResourceOfAnyGroup,
	} {
		var found []store.Unit
		for _, u := range units {
			if matches(u.Name, meant) {
				found = append(found, u)
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return store.Unit{}, Refused(fmt.Errorf("%q may be any of these, give one in full:\n%s",
				meant, unitNames(found)))
		}
	}
	if len(units) == 0 {
		return store.Unit{}, Refused(fmt.Errorf("there is no %q: no informer has any state", meant))
	}
	return store.Unit{}, Refused(fmt.Errorf("no informer has state under the name %q; there "+
		"are:\n%s", meant, unitNames(units)))
}

// Names of units are informer/resource and informer/resource/namespace, the resource as
// plural.group.

func isUnit(name, meant string) bool { return name == meant }

// isResource leaves out the informer, the namespace, or both.
func isResource(name, meant string) bool {
	informer, rest, _ := strings.Cut(name, "/")
	resource, _, _ := strings.Cut(rest, "/")
	return meant == rest || meant == resource || meant == informer+"/"+resource
}

// isResourceOfAnyGroup leaves out the group too.
func isResourceOfAnyGroup(name, meant string) bool {
	informer, rest, _ := strings.Cut(name, "/")
	resource, namespace, one := strings.Cut(rest, "/")
	plural, _, _ := strings.Cut(resource, ".")
	short := informer + "/" + plural
	if one {
		short += "/" + namespace
	}
	return isUnit(short, meant) || isResource(short, meant)
}

func unitNames(units []store.Unit) string {
	var lines []string
	for _, u := range units {
		lines = append(lines, "  "+u.Name)
	}
	return strings.Join(lines, "\n")
}

// completeUnits lets shells complete the first argument.
func completeUnits(s *Settings) cobra.CompletionFunc {
	return func(
		cmd *cobra.Command, args []string, _ string,
	) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, none
		}
		state, err := openState(cmd, s)
		if err != nil {
			return nil, none
		}
		defer state.inspector.Close()
		units, err := state.inspector.Units()
		if err != nil {
			return nil, none
		}
		for _, u := range units {
			names = append(names, u.Name)
		}
		return names, none
	}
}

// unitProblems says what of a unit's state can't be understood, and what can be done about it.
func unitProblems(u store.Unit, usage store.Usage, errs ...error) error {
	var problems []error
	if usage.Damaged > 0 {
		problems = append(problems, fmt.Errorf("%s: %s can't be understood; restore the "+
			"directory from a copy, or forget them with 'bridge statedir reset %s'",
			u.Name, terminal.Amount(usage.Damaged, "record"), u.Name))
	}
	for _, err := range errs {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", u.Name, err))
		}
	}
	return errors.Join(problems...)
}
