package cli

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// timelineOptions are the flags of bridge timeline.
type timelineOptions struct {
	*historyOptions
	since, until string
	kinds        []string
	managers     []string
	actors       []string
	notActors    []string
	deleted      bool
	heartbeats   bool
	noise        bool // is listed too
	withOwned    bool
	of           []string // the object with --with-owned
}

func newTimelineCommand() *cobra.Command {
	o := &timelineOptions{}
	cmd := &cobra.Command{
		Use:   "timeline [KIND,...|KIND/NAME]",
		Short: "List everything that happened in a namespace, or to an application",
		Long: `timeline lists what happened in a namespace, or with -A in the cluster, in the order of
time: by seconds, and within a second in the order of resourceVersions. In a table repeated changes
of the same fields of an object are one row, with their number, unless a change brings an older
value back. An object whose owner the stream names (owners: true at the informer) has it in
parentheses. What may be missing is a row of its own, and in -o json a document {"gap": ...}.

With --with-owned it is the timeline of an object, and of all that it owned then, by owner
references: of a Deployment, its ReplicaSets and their Pods, also those that are gone. What had the
object's name before and after belongs to it.

A table leaves out, and counts, updates of the status alone, and Events, Endpoints and Leases, unless
kinds are named: --all lists them. A container that fails is always listed. Updates that only say
that somebody is alive (lastHeartbeatTime, renewTime and the like) are counted, and listed with
--heartbeats. A table has at most 10,000 rows; -o json writes one document a line, of any number,
with all values, and only leaves out heartbeats.

` + timeHelp + `

Exit codes: 0; 1 when the history can't be read; 2 when there is none.`,
		Example: `  bridge timeline -n shop --since 1h
  bridge timeline -A --since 13:00 --until 14:03 --deleted
  bridge timeline deploy/web -n shop --with-owned --since 1d
  bridge timeline deploy,cm -n shop --since 1d --manager kubectl-edit`,
		Args: cobra.MaximumNArgs(1),
	}
	o.historyOptions = historyFlags(cmd, "table", "json")
	cmd.Flags().StringVar(&o.since, "since", "1h", "begin at this time")
	cmd.Flags().StringVar(&o.until, "until", "", "end at this time; none: now")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these resources, as deploy,cm; the same as the argument")
	cmd.Flags().StringSliceVar(&o.managers, "manager", nil, "only changes by these field managers")
	cmd.Flags().StringSliceVar(&o.actors, "actor", nil, "only changes by these users, as alice; * is any text")
	cmd.Flags().StringSliceVar(&o.notActors, "not-actor", nil, "no changes by these users, as 'system:*'")
	cmd.Flags().BoolVar(&o.deleted, "deleted", false, "only deletes")
	cmd.Flags().BoolVar(&o.heartbeats, "heartbeats", false, "list heartbeats too")
	cmd.Flags().BoolVar(&o.noise, "all", false, "list status-only updates, Events, Endpoints, Leases "+
		"and heartbeats too")
	cmd.Flags().BoolVar(&o.withOwned, "with-owned", false, "what happened to an object and to all "+
		"that it owned, as deploy/web")
	cmd.MarkFlagsMutuallyExclusive("with-owned", "all-namespaces")
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, toComplete string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if o.withOwned {
			return o.completeObjects(cmd, args, toComplete)
		}
		return o.completeKinds(cmd, args, toComplete)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.withOwned {
			if len(args) == 0 {
				return errors.New("--with-owned: want KIND/NAME, as deploy/web")
			}
			o.of, args = args, nil
		}
		if o.kinds, err = kindArgs(args, o.kinds); err != nil {
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
	db, q, owned, err := o.openTimeline(cmd, s)
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
	if err := warnEnd(cmd, q, happened.Units, s.until); err != nil {
		return err
	}
	rows := &timelineRows{
		out: cmd.OutOrStdout(), options: o, holes: happened.Holes, whole: db.Questions.Timeline.Whole,
		actors: ask.NewActors(q.History), hidden: map[string]int{},
	}
	for _, u := range happened.Units {
		isRecorded, err := rows.actors.IsRecorded(u.Cluster())
		if err != nil {
			return Failed(err)
		}
		rows.hasActors = rows.hasActors || isRecorded
	}
	if !rows.hasActors && len(o.actors)+len(o.notActors) > 0 {
		return Refused(ask.ErrNoAudit)
	}
	for e, err := range happened.Entries {
		if err != nil {
			return Failed(err)
		}
		if owned != nil && !owned.Has(e) {
			continue
		}
		if err := rows.print(e); err != nil {
			return Failed(err)
		}
	}
	return Failed(rows.flush())
}

// openTimeline opens the history. The OwnedObjects are nil without --with-owned.
func (o *timelineOptions) openTimeline(
	cmd *cobra.Command, s span,
) (*history.DB, *ask.Question, *ask.OwnedObjects, error) {
	if !o.withOwned {
		db, q, err := o.openQuestion(cmd)
		return db, q, nil, err
	}
	db, q, object, err := o.openObject(cmd, o.of, s.until)
	if err != nil {
		return nil, nil, nil, err
	}
	b, err := q.OwnedObjects(object, s.since.At, s.until.At)
	if err != nil {
		return nil, nil, nil, errors.Join(failedQuestion(err), db.Close())
	}
	q.Cluster, q.Namespace = object.Unit.Cluster(), object.Namespace
	if q.Namespace == "" { // what is in no namespace owns what is in any
		q.Namespace, o.all = "*", true
	}
	return db, q, b, nil
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
	alive      map[query.Object]bool // objects with heartbeats
	hidden     map[string]int        // by class
	actors     *ask.Actors
	// hasActors: an audit log was recorded. unattributed counts what was left out since its user is
	// not known.
	hasActors    bool
	unattributed int
}

// timelineRow is one change, or several of the same fields.
type timelineRow struct {
	first, last                     time.Time
	op, object, manager, what, same string
	actor                           *query.ActorReport
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
	if !o.heartbeats && !o.noise && e.IsHeartbeat() {
		r.heartbeats++
		if r.alive == nil {
			r.alive = map[query.Object]bool{}
		}
		if len(r.alive) < maxTimelineRows {
			r.alive[query.Object{Unit: e.Unit, Namespace: e.Event.Namespace, Name: e.Event.Name}] = true
		}
		return nil
	}
	switch selected, err := r.actors.Selects(e.Version, o.actors, o.notActors); {
	case err != nil:
		return err
	case selected == ask.UserUnknown:
		r.unattributed++
		return nil
	case selected == ask.UserOther:
		return nil
	}
	if o.output == "json" {
		return r.writeJSON(e)
	}
	if class := ask.NoiseOf(e); !o.noise && class != "" &&
		(class == ask.ClassStatus || len(o.kinds) == 0) {
		r.hidden[class]++
		return nil
	}
	return r.fold(e)
}

// printHoles prints what may be missing from before a time on; all for the zero time.
func (r *timelineRows) printHoles(before time.Time) error {
	for len(r.holes) > 0 && (before.IsZero() || r.holes[0].Begins().Before(before)) {
		m := r.holes[0]
		r.holes = r.holes[1:]
		if r.options.output == "json" {
			if err := terminal.PrintLine(r.out, gapLine{m.Report()}); err != nil {
				return err
			}
			continue
		}
		resource, what := m.Unit.GroupResource(), m.What()
		if m.IsUnwatched() {
			what = unwatchedUntil(m)
		}
		same := fmt.Sprint(m.Reason, m.IsUnwatched(), m.Begins().Unix())
		if n := len(r.rows); n > 0 && r.rows[n-1].same == same { // of another resource
			row := r.rows[n-1]
			row.count++
			row.object = fmt.Sprintf("%d resources", row.count)
			row.what = cmp.Or(m.Reason, "unknown")
			if m.IsUnwatched() {
				row.what = unwatchedUntil(m)
			}
			continue
		}
		op := "gap"
		if m.IsUnwatched() {
			op = "not watched"
		}
		r.addRow(&timelineRow{
			first: m.Begins(), last: m.Until, op: op, object: resource, manager: "-", what: what, same: same, count: 1,
		})
	}
	return nil
}

func unwatchedUntil(m *query.Notice) string { return "until " + query.ShowTime(m.Until) }

func (r *timelineRows) writeJSON(e *query.Entry) error {
	report := e.Report()
	if err := r.actors.AddTo(&report.VersionReport, e.Version); err != nil {
		return err
	}
	if e.IsCut() {
		changes, err := r.whole(e)
		if err != nil {
			return err
		}
		report.More, report.Changed = 0, query.ReportChanges(changes)
	}
	return terminal.PrintLine(r.out, report)
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
	}
	var made query.VersionReport
	if err := r.actors.AddTo(&made, e.Version); err != nil {
		return err
	}
	row.actor = made.Actor
	row.same = fmt.Sprint(e.Event.Op, " ", e.Event.Manager, " ", row.actor, " ", strings.Join(paths, " "), e.More)
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
		fmt.Fprintln(t, "TIME\tOPERATION\tOBJECT\t"+columnWhere(r.hasActors, "USER")+"MANAGER\tCHANGED")
	}
	for _, row := range r.rows {
		times := ""
		if row.count > 1 && row.values != nil {
			times = fmt.Sprintf(" (%d times until %s)", row.count, row.last.Local().Format("15:04:05"))
		}
		fmt.Fprintf(t, "%s\t%s%s\t%s\t%s%s\t%s\n", query.ShowTime(row.first), row.op, times,
			terminal.OneLine(row.object), columnWhere(r.hasActors, terminal.OneLine(shortActor(row.actor))),
			terminal.OneLine(row.manager), terminal.OneLine(row.what))
	}
	err := t.Flush()
	switch hasNone := len(r.rows) == 0; {
	case hasNone && len(r.hidden) == 0:
		fmt.Fprintln(r.out, "nothing happened")
	case hasNone:
		fmt.Fprintln(r.out, "nothing else happened")
	}
	if r.beyond > 0 {
		fmt.Fprintf(r.out, "\n%s left out: narrow the time, or use -o json\n",
			terminal.Amount(r.beyond, "change"))
	}
	if r.unattributed > 0 {
		fmt.Fprintf(r.out, "\n%s left out, of which the user is not known: they may be by one of --actor\n",
			terminal.Amount(r.unattributed, "change"))
	}
	printHidden(r.out, r.hidden)
	if r.heartbeats > 0 {
		fmt.Fprintf(r.out, "\n%s of %s left out: --heartbeats lists them\n",
			terminal.Amount(r.heartbeats, "heartbeat"), terminal.Amount(len(r.alive), "object"))
	}
	return err
}

// printHidden says how many changes a table leaves out, by class.
func printHidden(w io.Writer, hidden map[string]int) {
	var parts []string
	if n := hidden[ask.ClassStatus]; n > 0 {
		parts = append(parts, terminal.Amount(n, "status-only update"))
	}
	if n := hidden[ask.ClassDerived]; n > 0 {
		parts = append(parts, terminal.Amount(n, "change")+" of Events, Endpoints, Leases")
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "\n%s left out: --all lists them\n", strings.Join(parts, " and "))
	}
}
