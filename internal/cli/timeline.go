package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
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
time: by seconds, and within a second in the order of resourceVersions. In a table repeated changes
of the same fields of an object are one row, with their number, unless a change brings an older
value back. An object whose owner the stream names (owners: true at the informer) has it in
parentheses. What may be missing is a row of its own, and in -o json a document {"gap": ...}.

Updates that only say that somebody is alive (lastHeartbeatTime, renewTime and the like) are
counted, and listed with --heartbeats. A table has at most 10,000 rows; -o json writes one document
a line, of any number, with all values.

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
	rows := &timelineRows{
		out: cmd.OutOrStdout(), options: o, holes: happened.Holes, whole: db.Questions.Timeline.Whole,
	}
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
	out     io.Writer
	options *timelineOptions
	whole   func(*query.Entry) ([]diff.Change, error)
	// holes are what may be missing, in the order of time. They are printed among the rest.
	holes      []*query.Notice
	rows       []*timelineRow
	last       map[string]*timelineRow // by object
	beyond     int
	heartbeats int
	alive      map[string]bool // objects with heartbeats
}

// timelineRow is one change, or several of the same fields.
type timelineRow struct {
	first, last                     time.Time
	op, object, manager, what, same string
	count                           int
	// values are hashes of what the fields were: a change back to one of them is a row of its own.
	values map[uint64]bool
}

// Bounds of a table, and of a row.
const (
	maxTimelineRows = 10_000
	maxRowValues    = 1_000
)

func (r *timelineRows) print(e *query.Entry) error {
	o := r.options
	if err := r.printHoles(e.Time); err != nil {
		return err
	}
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
	return r.fold(e)
}

// printHoles prints what may be missing from before a time on; all for the zero time.
func (r *timelineRows) printHoles(before time.Time) error {
	for len(r.holes) > 0 && (before.IsZero() || r.holes[0].Begins().Before(before)) {
		m := r.holes[0]
		r.holes = r.holes[1:]
		if r.options.output == "json" {
			if err := r.writeLine(gapLine{m.Report()}); err != nil {
				return err
			}
			continue
		}
		resource := m.Unit.GroupResource()
		same := m.Reason + m.Begins().Format(time.RFC3339)
		if n := len(r.rows); n > 0 && r.rows[n-1].same == same { // of another resource
			row := r.rows[n-1]
			row.count++
			row.object = fmt.Sprintf("%d resources", row.count)
			row.what = cmp.Or(m.Reason, "unknown")
			continue
		}
		r.addRow(&timelineRow{
			first: m.Begins(), op: "gap", object: resource, manager: "-", what: m.What(), same: same, count: 1,
		})
	}
	return nil
}

func (r *timelineRows) writeJSON(e *query.Entry) error {
	report := e.Report()
	if e.IsCut() {
		changes, err := r.whole(e)
		if err != nil {
			return err
		}
		report.More, report.Changed = 0, query.ReportChanges(changes)
	}
	return r.writeLine(report)
}

func (r *timelineRows) writeLine(value any) error {
	line, err := terminal.JSONLine(value)
	if err == nil {
		_, err = r.out.Write(line)
	}
	return err
}

// fold adds a change to the row of its object with the same fields, unless it brings back what one
// of them was, or else as a row of its own.
func (r *timelineRows) fold(e *query.Entry) error {
	object := e.Event.Kind + "/" + e.Event.Name
	if r.options.all && e.Event.Namespace != "" {
		object = e.Event.Namespace + "/" + object
	}
	if kind := e.Attribute("ownerkind"); kind != "" {
		object += " (" + kind + "/" + e.Attribute("ownername") + ")"
	}
	var paths []string
	for _, c := range e.Changes {
		paths = append(paths, c.Path)
	}
	row := &timelineRow{
		first: e.Time, last: e.Time, op: operation(e.Version), object: object,
		manager: who(e.Version), what: whatChanged(e.Version, e.HasBefore, e.Changes, e.More), count: 1,
		same: fmt.Sprint(e.Event.Op, " ", e.Event.Manager, " ", strings.Join(paths, " "), e.More),
	}
	if e.Event.Op != event.Updated {
		r.addRow(row)
		return nil
	}
	changes := e.Changes
	if e.IsCut() {
		var err error
		if changes, err = r.whole(e); err != nil {
			return err
		}
	}
	old, now := hashValues(changes)
	last := r.last[object]
	if last == nil || last.same != row.same || last.values[now] || len(last.values) == maxRowValues {
		row.values = map[uint64]bool{old: true, now: true}
		r.addRow(row)
		return nil
	}
	last.count++
	last.last, last.values[now] = e.Time, true
	last.what = fieldNames(e.Changes, e.More, false)
	return nil
}

var valueSeed = maphash.MakeSeed()

// hashValues returns hashes of the old and of the new values.
func hashValues(changes []diff.Change) (old, now uint64) {
	var a, b maphash.Hash
	a.SetSeed(valueSeed)
	b.SetSeed(valueSeed)
	for _, c := range changes {
		for h, value := range map[*maphash.Hash][]byte{&a: c.Old, &b: c.New} {
			_, _ = fmt.Fprintf(h, "%s=%d:%s;", c.Path, len(value), value)
		}
	}
	return a.Sum64(), b.Sum64()
}

func (r *timelineRows) addRow(row *timelineRow) {
	if len(r.rows) == maxTimelineRows {
		r.beyond++
		return
	}
	r.rows = append(r.rows, row)
	if r.last == nil {
		r.last = map[string]*timelineRow{}
	}
	r.last[row.object] = row
}

func (r *timelineRows) flush() error {
	if err := r.printHoles(time.Time{}); err != nil || r.options.output == "json" {
		return err
	}
	t := terminal.NewTable(r.out)
	if len(r.rows) > 0 {
		fmt.Fprintln(t, "TIME\tOPERATION\tOBJECT\tMANAGER\tCHANGED")
	}
	for _, row := range r.rows {
		times := ""
		if row.count > 1 && row.op != "gap" {
			times = fmt.Sprintf(" (%d times until %s)", row.count, row.last.Local().Format("15:04:05"))
		}
		fmt.Fprintf(t, "%s\t%s%s\t%s\t%s\t%s\n", query.ShowTime(row.first), row.op, times,
			terminal.OneLine(row.object), terminal.OneLine(row.manager), terminal.OneLine(row.what))
	}
	err := t.Flush()
	if len(r.rows) == 0 {
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
resource by resource, by namespace and name. As YAML they are documents, which can be piped into
kubectl diff -f -; as JSON one document a line.

Where objects may be missing it says so: a gap, dropped events, or a first list that had not ended
then. In YAML these are comments, in JSON documents with the only key gap or unlisted. A time or version before the history's horizon is refused. (The state directory of a bridge is
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

// printUncertain writes what may be wrong into the answer too, since it may be kept without what
// went to standard error: into YAML as comments, into JSON as documents of their own.
func (r *stateRows) printUncertain(s *ask.State) error {
	var lines []any
	var texts []string
	for _, m := range s.Holes {
		texts = append(texts, m.Warning())
		lines = append(lines, gapLine{m.Report()})
	}
	for i := range s.Unlisted {
		u := &s.Unlisted[i]
		texts = append(texts, u.Warning())
		lines = append(lines, unlistedLine{u.Report()})
	}
	var err error
	for i, text := range texts {
		switch r.output {
		case "json":
			var line []byte
			if line, err = terminal.JSONLine(lines[i]); err == nil {
				_, err = r.w.Write(line)
			}
		case "yaml":
			_, err = fmt.Fprintf(r.w, "# %s\n", terminal.OneLine(text))
		}
		if err != nil {
			return err
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
)

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
