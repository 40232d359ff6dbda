package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// stateOptions are the flags of bridge state.
type stateOptions struct {
	*historyOptions
	at       string
	kinds    []string
	selector string
}

func newStateCommand() *cobra.Command {
	o := &stateOptions{}
	cmd := &cobra.Command{
		Use:   "state [KIND,...]",
		Short: "Print all objects as they were at a time",
		Long: `state prints all objects of a namespace, or with -A of the cluster, as they were at a time:
resource by resource, by namespace and name. As YAML they are documents, which can be piped into
kubectl diff -f -; as JSON one document a line.

Where objects may be missing it says so: a gap, dropped events, or a first list that had not ended
then. Objects with * may have been another one already, and those with + may have existed already:
their next change, or their creation, became known late, because there was no watch. In YAML all this is
comments, in JSON documents with the only key gap, unlisted or uncertain.

A time or version before the history's horizon, or that the history has not reached, is refused.
(The state directory of a bridge is that of 'bridge statedir'.)

` + timeHelp + `

Exit codes: 0; 1 when the state of that time is not known, or the history can't be read; 2 when
there is no history.`,
		Example: `  bridge state --at 14:03 -n shop
  bridge state deploy,sts --at "2h ago" -A -o yaml
  bridge state --at 48213 -n shop -l app=web -o json --dir /var/lib/history     at a resourceVersion`,
		Args: cobra.MaximumNArgs(1),
	}
	o.historyOptions = historyFlags(cmd, "table", "yaml", "json")
	cmd.Flags().StringVar(&o.at, "at", "",
		"time or resourceVersion; none: the last state that is known")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these resources, as deploy,cm; the same as the argument")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"only objects with these labels, as app=web")
	cmd.ValidArgsFunction = o.completeKinds
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := ask.ParsePoint("--at", o.at)
		var kindErr error
		o.kinds, kindErr = kindArgs(args, o.kinds)
		selector, selectorErr := labels.Parse(o.selector)
		if selectorErr != nil {
			selectorErr = fmt.Errorf("--selector: %w", selectorErr)
		}
		if err := errors.Join(err, kindErr, selectorErr); err != nil {
			return err
		}
		return o.run(cmd, p, selector)
	}
	return cmd
}

func (o *stateOptions) run(cmd *cobra.Command, p query.Point, selector labels.Selector) error {
	db, q, err := o.openQuestion(cmd)
	if err != nil {
		return err
	}
	defer db.Close()
	state, err := q.State(o.kinds, p)
	if err != nil {
		return failedQuestion(err)
	}
	if err := warnState(cmd, q, &state); err != nil {
		return err
	}
	rows := newStateRows(cmd.OutOrStdout(), o.output, o.all)
	if err := rows.printUncertain(&state); err != nil {
		return Failed(err)
	}
	for v, err := range db.Questions.Objects.State(state.StateQuery) {
		if err != nil {
			return Failed(err)
		}
		if !selector.Empty() && !selector.Matches(v.Labels()) {
			continue
		}
		if err := rows.print(v); err != nil {
			return Failed(err)
		}
	}
	for v, err := range db.Questions.Objects.Arrivals(state.StateQuery) {
		if err == nil && selector.Matches(v.Labels()) {
			err = rows.printArrival(v)
		}
		if err != nil {
			return Failed(err)
		}
	}
	return Failed(rows.flush(cmd.ErrOrStderr()))
}

// warnState reports what may be wrong in a state.
func warnState(cmd *cobra.Command, q *ask.Question, s *ask.State) error {
	printHoles(cmd, slices.Concat(s.Holes, s.Unwatched))
	for _, u := range s.Unlisted {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s\n", terminal.Plain(u.Warning()))
	}
	return warnEnd(cmd, q, s.Units, s.At)
}

// stateRows prints objects as they come.
type stateRows struct {
	w       io.Writer
	output  string
	all     bool // namespaces
	table   *tabwriter.Writer
	count   int
	missing int // objects without a body
	// uncertain are the objects of which a change became known late, arrivals those that may have
	// come.
	uncertain, arrivals int
}

func newStateRows(w io.Writer, output string, all bool) *stateRows {
	return &stateRows{w: w, output: output, all: all}
}

// printUncertain writes what may be wrong into the answer too, since it may be kept without what
// went to standard error: into YAML as comments, into JSON as documents of their own.
func (r *stateRows) printUncertain(s *ask.State) error {
	var lines []any
	var texts []string
	notices := slices.Concat(s.Holes, s.Unwatched)
	for _, g := range query.GroupNotices(notices) {
		texts = append(texts, g.Warning())
	}
	for _, m := range notices {
		lines = append(lines, gapLine{m.Report()})
	}
	for i := range s.Unlisted {
		u := &s.Unlisted[i]
		texts = append(texts, u.Warning())
		lines = append(lines, unlistedLine{u.Report()})
	}
	switch r.output {
	case "json":
		for _, line := range lines {
			if err := terminal.PrintLine(r.w, line); err != nil {
				return err
			}
		}
	case "yaml":
		for _, text := range texts {
			if _, err := fmt.Fprintf(r.w, "# %s\n", terminal.OneLine(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Documents of an answer in JSON that are no objects.
type (
	gapLine struct {
		Gap query.HoleReport `json:"gap"`
	}
	unlistedLine struct {
		Unlisted query.UnlistedReport `json:"unlisted"`
	}
	uncertainLine struct {
		Uncertain uncertainObject `json:"uncertain"`
	}
)

// uncertainObject is an object that may have changed, or existed, already.
type uncertainObject struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	What      string `json:"mayHave"` // changed, or existed
	*query.LateChange
}

// tableChunk is how many rows are aligned with each other: a table is not kept in memory.
const tableChunk = 500

func (r *stateRows) print(v *query.Version) error {
	if r.output == "table" {
		return r.addRow(v)
	}
	if form := v.Form(); form != record.FormObject && form != record.FormMetadata ||
		!json.Valid(v.Event.Data) {
		r.missing++
		return nil
	}
	if r.count++; r.count > 1 && r.output == "yaml" {
		if _, err := io.WriteString(r.w, "---\n"); err != nil {
			return err
		}
	}
	if err := r.printLate(v, "changed"); err != nil {
		return err
	}
	if r.output == "json" {
		return terminal.PrintLine(r.w, json.RawMessage(v.Event.Data))
	}
	return terminal.PrintYAML(r.w, json.RawMessage(v.Event.Data))
}

// printLate writes, where there is a doubt, that an object may have been another one, into an
// answer that is no table.
func (r *stateRows) printLate(v *query.Version, what string) error {
	if v.LateChange == nil {
		return nil
	}
	o := query.Object{Unit: v.Unit, Namespace: v.Event.Namespace, Name: v.Event.Name}
	if r.output == "json" {
		return terminal.PrintLine(r.w, uncertainLine{uncertainObject{
			v.Unit.GroupResource(), o.Namespace, o.Name, what, v.LateChange,
		}})
	}
	_, err := fmt.Fprintf(r.w, "# uncertain: %s may have %s already: %s\n", terminal.OneLine(o.String()), what,
		v.LateChange)
	return err
}

// printArrival prints an object that may have existed by then.
func (r *stateRows) printArrival(v *query.Version) error {
	if r.output != "table" {
		return r.printLate(v, "existed")
	}
	r.arrivals++
	return r.writeRow(v, "+")
}

func (r *stateRows) addRow(v *query.Version) error {
	mark := ""
	if v.LateChange != nil {
		r.uncertain++
		mark = "*"
	}
	return r.writeRow(v, mark)
}

// writeRow writes a row, with a mark behind the name.
func (r *stateRows) writeRow(v *query.Version, mark string) error {
	if r.table == nil {
		r.table = terminal.NewTable(r.w)
		fmt.Fprintln(r.table, r.row("NAMESPACE", "NAME", "VERSION", "CHANGED", "MANAGER"))
	}
	fmt.Fprintln(r.table, r.row(terminal.OneLine(v.Event.Namespace),
		terminal.OneLine(v.Unit.GroupResource()+"/"+v.Event.Name)+mark,
		terminal.OneLine(v.Event.ResourceVersion), query.ShowTime(v.Time), terminal.OneLine(who(v))))
	if r.count++; r.count%tableChunk == 0 {
		return r.table.Flush()
	}
	return nil
}

// row returns a row of the table, with its namespace where there may be several.
func (r *stateRows) row(namespace, name, version, changed, manager string) string {
	row := name + "\t" + version + "\t" + changed + "\t" + manager
	if r.all {
		row = namespace + "\t" + row
	}
	return row
}

// flush ends the answer. What can't be printed is reported to stderr.
func (r *stateRows) flush(stderr io.Writer) error {
	if r.missing > 0 {
		fmt.Fprintf(stderr, "bridge: %s left out: the stream has no whole object of them (payload); "+
			"-o table lists them\n",
			terminal.Amount(r.missing, "object"))
	}
	if r.table != nil {
		err := r.table.Flush()
		return errors.Join(err, printMarks(r.w, r.uncertain, r.arrivals))
	}
	if r.output == "table" {
		_, err := fmt.Fprintln(r.w, "no objects")
		return err
	}
	return nil
}

// printMarks explains the marks behind the names of objects.
func printMarks(w io.Writer, uncertain, arrivals int) (err error) {
	if uncertain+arrivals > 0 {
		_, err = fmt.Fprintln(w)
	}
	if uncertain > 0 {
		_, err = fmt.Fprintf(w, "* the next change of %s became known late: it may have been made already\n",
			terminal.Amount(uncertain, "object"))
	}
	if arrivals > 0 {
		_, err = fmt.Fprintf(w, "+ the creation of %s became known late: it may have existed already\n",
			terminal.Amount(arrivals, "object"))
	}
	return err
}
