package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// timelineOptions are the flags of bridge timeline.
type timelineOptions struct {
	*historyOptions
	since, until string
	all          bool // namespaces
	kinds        []string
	managers     []string
	deleted      bool
	heartbeats   bool
}

func newTimelineCommand() *cobra.Command {
	o := &timelineOptions{}
	cmd := &cobra.Command{
		Use:   "timeline",
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
  bridge timeline -n shop --since 1d --kind deploy,cm --manager kubectl-edit`,
		Args: cobra.NoArgs,
	}
	o.historyOptions = historyFlags(cmd, "table", "json")
	cmd.Flags().StringVar(&o.since, "since", "1h", "begin at this time")
	cmd.Flags().StringVar(&o.until, "until", "", "end at this time; none: now")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these resources, as deploy,cm")
	cmd.Flags().StringSliceVar(&o.managers, "manager", nil, "only changes by these field managers")
	cmd.Flags().BoolVar(&o.deleted, "deleted", false, "only deletes")
	cmd.Flags().BoolVar(&o.heartbeats, "heartbeats", false, "list heartbeats too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(o.output, "table", "json"); err != nil {
			return err
		}
		span, err := parseSpan(o.since, o.until, time.Now())
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
	db, err := o.open()
	if err != nil {
		return err
	}
	defer db.Close()
	cluster, err := o.oneCluster(db.Questions.Resources)
	if err != nil {
		return err
	}
	units, err := db.Questions.Resources.Select(cluster, o.kinds)
	if err != nil {
		return Failed(err)
	}
	namespace := o.namespace
	if o.all {
		namespace = "*"
	}
	wanted := func(u *record.Unit) bool { return slices.Contains(units, u) }
	holes, err := db.Questions.Coverage.HolesOf(units, s.since.At, s.until.At)
	if err := errors.Join(warnHorizon(cmd, db.Questions.Coverage, s.since.At),
		Failed(err)); err != nil {
		return err
	}
	printHoles(cmd, holes)
	rows := &timelineRows{out: cmd.OutOrStdout(), options: o}
	for e, err := range db.Questions.Timeline.Entries(cluster, namespace, s.since.At, s.until.At,
		wanted) {
		if err != nil {
			return Failed(err)
		}
		if err := rows.add(e); err != nil {
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

func (r *timelineRows) add(e *query.Entry) error {
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
