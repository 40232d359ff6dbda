package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// timelineOptions are the flags of bridge timeline.
type timelineOptions struct {
	*historyOptions
	since, until string
	kinds        []string
	managers     []string
	deleted      bool
	heartbeats   bool
}

func newTimelineCommand() *cobra.Command {
	o := &timelineOptions{}
	cmd := &cobra.Command{
		Use:   "timeline [KIND,...]",
		Short: "List everything that happened in a namespace",
		Long: `timeline lists what happened in a namespace, or with -A in the cluster, in the order of
time. In a table what belongs together stands together: the objects of one owner, where the stream
has owners (owners: true at the informer), and repeated changes of the same fields in one row, with
their number.

Updates that only say that somebody is alive (lastHeartbeatTime, renewTime and the like) are
counted, and listed with --heartbeats. A table has at most 10,000 rows; -o json writes one document
a line, of any number. Values of more than 20 bytes are omitted: 'bridge history' has them.

` + timeHelp + `

Exit codes: 0; 1 when the history can't be read; 2 when there is none.`,
		Example: `  bridge timeline -n shop --since 1h
  bridge timeline -A --since 13:00 --until 14:03 --deleted
  bridge timeline deploy,cm -n shop --since 1d --manager kubectl-edit`,
		Args: cobra.MaximumNArgs(1),
	}
	o.historyOptions = historyFlags(cmd, "table", "json")
	cmd.Flags().StringVar(&o.since, "since", "1h", "begin at this time")
	cmd.Flags().StringVar(&o.until, "until", "", "end at this time; none: now")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these resources, as deploy,cm; the same as the argument")
	cmd.Flags().StringSliceVar(&o.managers, "manager", nil, "only changes by these field managers")
	cmd.Flags().BoolVar(&o.deleted, "deleted", false, "only deletes")
	cmd.Flags().BoolVar(&o.heartbeats, "heartbeats", false, "list heartbeats too")
	cmd.ValidArgsFunction = o.completeKinds
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.kinds, err = kindArgs(args, o.kinds)
		if err := errors.Join(CheckOutput(o.output, "table", "json"), err); err != nil {
			return err
		}
		span, err := parseSpan(o.since, o.until)
		if err != nil {
			return err
		}
		if span.since.Version > 0 || span.until.Version > 0 {
			return errors.New("--since and --until of a timeline are times")
		}
		return o.run(cmd, span)
	}
	return cmd
}

func (o *timelineOptions) run(cmd *cobra.Command, s span) error {
	db, q, err := o.openQuestion()
	if err != nil {
		return err
	}
	defer db.Close()
	happened, err := q.Timeline(o.kinds, s.since, s.until)
	if err != nil {
		return failedQuestion(err)
	}
	horizon, err := q.KeptFrom(s.since.At)
	if err := warnRemoved(cmd, horizon, err); err != nil {
		return err
	}
	printHoles(cmd, happened.Holes)
	rows := &timelineRows{out: cmd.OutOrStdout(), options: o}
	for e, err := range happened.Entries {
		if err != nil {
			return Failed(err)
		}
		if err := rows.print(e); err != nil {
			return Failed(err)
		}
	}
	return Failed(rows.flush())
}

// timelineRows prints what happened.
type timelineRows struct {
	out        io.Writer
	options    *timelineOptions
	groups     []*timelineGroup
	byOwner    map[string]*timelineGroup
	rows       int
	beyond     int
	heartbeats int
	alive      map[string]bool // objects with heartbeats
}

// timelineGroup is what belongs to one owner.
type timelineGroup struct {
	owner string
	rows  []*timelineRow
	last  map[string]*timelineRow // by object
}

// timelineRow is one change, or several of the same fields.
type timelineRow struct {
	first, last                     time.Time
	op, object, manager, what, same string
	count                           int
}

// maxTimelineRows bounds a table.
const maxTimelineRows = 10_000

func (r *timelineRows) print(e *query.Entry) error {
	o := r.options
	switch {
	case o.deleted && !e.Deleted(),
		len(o.managers) > 0 && !slices.Contains(o.managers, e.Event.Manager):
		return nil
	}
	if !o.heartbeats && e.IsHeartbeat() {
		r.heartbeats++
		if r.alive == nil {
			r.alive = map[string]bool{}
		}
		if len(r.alive) < maxTimelineRows {
			r.alive[e.Event.PartitionKey] = true
		}
		return nil
	}
	if o.output == "json" {
		return r.writeJSON(e)
	}
	r.fold(e)
	return nil
}

func (r *timelineRows) writeJSON(e *query.Entry) error {
	line, err := terminal.JSONLine(e.Report())
	if err == nil {
		_, err = r.out.Write(line)
	}
	return err
}

// fold puts a change with what belongs to the same owner.
func (r *timelineRows) fold(e *query.Entry) {
	object := e.Event.Kind + "/" + e.Event.Name
	owner := object
	if kind := e.Attribute("ownerkind"); kind != "" {
		owner = kind + "/" + e.Attribute("ownername")
	}
	if r.options.all && e.Event.Namespace != "" {
		owner, object = e.Event.Namespace+"/"+owner, e.Event.Namespace+"/"+object
	}
	if r.byOwner == nil {
		r.byOwner = map[string]*timelineGroup{}
	}
	g := r.byOwner[owner]
	if g == nil {
		g = &timelineGroup{owner: owner, last: map[string]*timelineRow{}}
		r.byOwner[owner], r.groups = g, append(r.groups, g)
	}
	var paths []string
	for _, c := range e.Changes {
		paths = append(paths, c.Path)
	}
	same := fmt.Sprint(e.Event.Op, " ", e.Event.Manager, " ", strings.Join(paths, " "), e.More)
	if row := g.last[object]; row != nil && row.same == same && e.Event.Op == "updated" {
		row.count++
		row.last = e.Time
		row.what = fieldNames(e.Changes, e.More, false)
		return
	}
	if r.rows == maxTimelineRows {
		r.beyond++
		return
	}
	r.rows++
	row := &timelineRow{
		first: e.Time, last: e.Time, op: operation(e.Version), object: object, manager: who(e.Version),
		what: whatChanged(e.Version, e.HasBefore, e.Changes, e.More), same: same, count: 1,
	}
	g.last[object] = row
	g.rows = append(g.rows, row)
}

func (r *timelineRows) flush() error {
	if r.options.output == "json" {
		return nil
	}
	t := terminal.NewTable(r.out)
	if r.rows > 0 {
		fmt.Fprintln(t, "TIME\tOPERATION\tOBJECT\tMANAGER\tCHANGED")
	}
	for _, g := range r.groups {
		indent := ""
		if slices.ContainsFunc(g.rows, func(row *timelineRow) bool { return row.object != g.owner }) {
			fmt.Fprintf(t, "%s\t\t\t\t\n", terminal.OneLine(g.owner))
			indent = "  "
		}
		for _, row := range g.rows {
			times := ""
			if row.count > 1 {
				times = fmt.Sprintf(" (%d times until %s)", row.count,
					row.last.Local().Format("15:04:05"))
			}
			fmt.Fprintf(t, "%s%s\t%s%s\t%s\t%s\t%s\n", indent, query.ShowTime(row.first), row.op, times,
				terminal.OneLine(row.object),
				terminal.OneLine(row.manager), terminal.OneLine(row.what))
		}
	}
	err := t.Flush()
	if r.rows == 0 {
		fmt.Fprintln(r.out, "nothing happened")
	}
	if r.beyond > 0 {
		fmt.Fprintf(r.out, "\n%s left out: narrow the time, or use -o json\n",
			terminal.Amount(r.beyond, "change"))
	}
	if r.heartbeats > 0 {
		fmt.Fprintf(r.out, "\n%s of %s left out: --heartbeats lists them\n",
			terminal.Amount(r.heartbeats, "heartbeat"), terminal.Amount(len(r.alive), "object"))
	}
	return err
}

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
resource by resource, by namespace and name. As YAML they are documents, as JSON one document a
line: both can be piped into kubectl diff -f -.

Where objects may be missing it says so: a gap, dropped events, or a first list that had not ended
then. A time or version before the history's horizon is refused. (The state directory of a bridge is
that of 'bridge statedir'.)

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
		if err := errors.Join(CheckOutput(o.output, "table", "yaml", "json"), err, kindErr,
			selectorErr); err != nil {
			return err
		}
		return o.run(cmd, p, selector)
	}
	return cmd
}

func (o *stateOptions) run(cmd *cobra.Command, p query.Point, selector labels.Selector) error {
	db, q, err := o.openQuestion()
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
	return Failed(rows.flush(cmd.ErrOrStderr()))
}

// warnState reports what may be wrong in a state.
func warnState(cmd *cobra.Command, q *ask.Question, s *ask.State) error {
	printHoles(cmd, s.Holes)
	for _, u := range s.Unlisted {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s\n", terminal.Plain(u.Warning()))
	}
	return warnEnd(cmd, q, s.Units, s.At.At)
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

func (r *stateRows) print(v *query.Version) error {
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
		return r.table.Flush()
	}
	if r.output == "table" {
		_, err := fmt.Fprintln(r.w, "no objects")
		return err
	}
	return nil
}
