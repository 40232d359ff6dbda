package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// stateOptions are the flags of bridge state.
type stateOptions struct {
	*historyOptions
	at       string
	all      bool // namespaces
	kinds    []string
	selector string
}

func newStateCommand() *cobra.Command {
	o := &stateOptions{}
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Print all objects as they were at a time",
		Long: `state prints all objects of a namespace, or with -A of the cluster, as they were at a time:
resource by resource, by namespace and name. As YAML they are documents, as JSON one document a
line: both can be piped into kubectl diff -f -.

Where objects may be missing it says so: a gap, dropped events, or a first list that had not ended
then. A time or version before the history's horizon is refused. (The state directory of a bridge is
that of 'bridge statedir'.)

` + timeHelp + `

Exit codes: 0; 1 when the state of that time is not known, or the history can't be read; 2 when
there is no history.`,
		Example: `  bridge state --at 14:03 -n shop
  bridge state --at "2h ago" -A --kind deploy,sts -o yaml
  bridge state --at 48213 -n shop -l app=web -o json --dir /var/lib/history     at a resourceVersion`,
		Args: cobra.NoArgs,
	}
	o.historyOptions = historyFlags(cmd, "table", "yaml", "json")
	cmd.Flags().StringVar(&o.at, "at", "",
		"time or resourceVersion; none: the last state that is known")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these resources, as deploy,cm")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"only objects with these labels, as app=web")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := parseAt("--at", o.at)
		selector, selectorErr := labels.Parse(o.selector)
		if selectorErr != nil {
			selectorErr = fmt.Errorf("--selector: %w", selectorErr)
		}
		if err := errors.Join(CheckOutput(o.output, "table", "yaml", "json"), err,
			selectorErr); err != nil {
			return err
		}
		return o.run(cmd, p, selector)
	}
	return cmd
}

func (o *stateOptions) run(cmd *cobra.Command, p query.Point, selector labels.Selector) error {
	db, err := o.open()
	if err != nil {
		return err
	}
	defer db.Close()
	cluster, err := o.oneCluster(db.Questions.Resources)
	if err != nil {
		return err
	}
	q := query.StateQuery{Namespace: o.namespace, At: p}
	if o.all {
		q.Namespace = "*"
	}
	if q.Units, err = db.Questions.Resources.Select(cluster, o.kinds); err != nil {
		return Failed(err)
	}
	if err := warnState(cmd, db.Questions, q); err != nil {
		return err
	}
	rows := newStateRows(cmd.OutOrStdout(), o.output, o.all)
	for v, err := range db.Questions.Objects.State(q) {
		if err != nil {
			return Failed(err)
		}
		if !selector.Empty() && !selector.Matches(v.Labels()) {
			continue
		}
		if err := rows.add(v); err != nil {
			return Failed(err)
		}
	}
	return Failed(rows.flush(cmd.ErrOrStderr()))
}

// warnState reports what may be wrong in a state. One of before the horizon is an error.
func warnState(cmd *cobra.Command, h *query.Questions, q query.StateQuery) error {
	if err := h.Coverage.CheckState(q); err != nil {
		return Failed(err)
	}
	holes, unlisted, err := h.Coverage.UncertainState(q)
	if err != nil {
		return Failed(err)
	}
	printHoles(cmd, holes)
	for _, u := range unlisted {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s\n", terminal.Plain(u.Warning()))
	}
	return warnEnd(cmd, h, q.Units, q.At.At)
}

// stateRows prints objects as they come.
type stateRows struct {
	w       io.Writer
	output  string
	all     bool // namespaces
	table   *tabwriter.Writer
	count   int
	missing int // objects without a body
}

func newStateRows(w io.Writer, output string, all bool) *stateRows {
	return &stateRows{w: w, output: output, all: all}
}

// tableChunk is how many rows are aligned with each other: a table is not kept in memory.
const tableChunk = 500

func (r *stateRows) add(v *query.Version) error {
	if r.output == "table" {
		return r.addRow(v)
	}
	if form := v.Form(); form != record.FormObject && form != record.FormMetadata ||
		!json.Valid(v.Event.Data) {
		r.missing++
		return nil
	}
	r.count++
	if r.output == "json" {
		line, err := terminal.JSONLine(json.RawMessage(v.Event.Data))
		if err == nil {
			_, err = r.w.Write(line)
		}
		return err
	}
	if r.count > 1 {
		if _, err := io.WriteString(r.w, "---\n"); err != nil {
			return err
		}
	}
	return terminal.PrintYAML(r.w, json.RawMessage(v.Event.Data))
}

func (r *stateRows) addRow(v *query.Version) error {
	if r.table == nil {
		r.table = terminal.NewTable(r.w)
		fmt.Fprintln(r.table, r.row("NAMESPACE", "NAME", "VERSION", "CHANGED", "MANAGER"))
	}
	fmt.Fprintln(r.table, r.row(terminal.OneLine(v.Event.Namespace),
		terminal.OneLine(v.Unit.GroupResource()+"/"+v.Event.Name),
		terminal.OneLine(v.Event.ResourceVersion), query.ShowTime(v.Time), terminal.OneLine(who(v))))
	if r.count++; r.count%tableChunk == 0 {
		return r.table.Flush()
	}
	return nil
}

// row is one of the table; namespaces are shown where there may be several.
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
		return r.table.Flush()
	}
	if r.output == "table" {
		_, err := fmt.Fprintln(r.w, "no objects")
		return err
	}
	return nil
}
