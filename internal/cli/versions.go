package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	textdiff "github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

func newHistoryCommand() *cobra.Command {
	var since, until, field string
	var all bool
	cmd := &cobra.Command{
		Use:   "history KIND/NAME",
		Short: "List every version of an object: when, by whom, what changed",
		Long: `history lists the versions of one object in their order: when each change was made, what
happened, the field manager that made it, which fields changed, and the resourceVersion. With
--field it lists only the changes of one field, with its values. A table leaves out, and counts,
updates of the status alone: --all lists them, and -o json does.

The manager is the name that a client chose for itself, not an authenticated user. Where the object
does not show who made a change there is none.

Resources are named as kubectl does: deploy/web, deployments.apps/web, deployment web.
` + timeHelp + `

Where versions may be missing (a gap, dropped events, messages that the stream had removed) it says
so.

Exit codes: 0; 1 when the object is not known, or the history can't be read; 2 when there is none.`,
		Example: `  bridge history deploy/web -n shop
  bridge history deploy/web -n shop --field spec.replicas
  bridge history deploy/web -n shop --field 'spec.template.spec.containers[app].image'
  bridge history node/worker-1 --since 2h --dir /var/lib/history -o json`,
		Args: cobra.RangeArgs(1, 2),
	}
	o := historyFlags(cmd, "table", "json", "yaml")
	cmd.Flags().StringVar(&since, "since", "", "begin at this time")
	cmd.Flags().StringVar(&until, "until", "", "end at this time")
	cmd.Flags().StringVar(&field, "field", "", "list only changes of this field, as spec.replicas")
	cmd.Flags().BoolVar(&all, "all", false, "list updates of the status alone too")
	cmd.ValidArgsFunction = o.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		span, err := parseSpan(since, until)
		if err != nil {
			return err
		}
		db, q, object, err := o.openObject(cmd, args, span.until)
		if err != nil {
			return err
		}
		defer db.Close()
		for _, p := range []query.Point{span.since, span.until} {
			if err := q.CheckPoint(object.Unit.Cluster(), p); err != nil {
				return failedQuestion(err)
			}
		}
		holes, err := q.History.Coverage.Holes(object, span.since.At, span.until.At)
		if err != nil {
			return Failed(err)
		}
		horizon, err := q.Removed(object, span.since.At)
		if err := warnRemoved(cmd, horizon, err); err != nil {
			return err
		}
		printHoles(cmd, holes)
		if err := warnEnd(cmd, q, []*record.Unit{object.Unit}, span.until); err != nil {
			return err
		}
		rows := newVersionRows(cmd.OutOrStdout(), field, o.output)
		rows.all = all
		return Failed(writeVersions(rows, q.History, object, span))
	}
	cmd.AddCommand(newHistoryCheckCommand(), newBackupCommand(), newRestoreCommand())
	return cmd
}

// span is from one point to another. Zero points are no limit.
type span struct{ since, until query.Point }

func parseSpan(since, until string) (s span, err error) {
	if s.since, err = ask.ParsePoint("--since", since); err != nil {
		return s, err
	}
	if s.until, err = ask.ParsePoint("--until", until); err != nil {
		return s, err
	}
	if !s.since.At.IsZero() && !s.until.At.IsZero() && s.until.At.Before(s.since.At) {
		return s, fmt.Errorf("--until %s is before --since %s", s.until, s.since)
	}
	return s, nil
}

// has reports whether a version lies within, as far as resourceVersions say.
func (s *span) has(v *query.Version) bool {
	n := v.Number()
	return (s.since.Version == 0 || n >= s.since.Version) &&
		(s.until.Version == 0 || n <= s.until.Version)
}

func writeVersions(
	rows *versionRows, history *query.Questions, object *query.Object, s span,
) error {
	objects, actors := history.Objects, ask.NewActors(history)
	hasActors, err := actors.IsRecorded(object.Unit.Cluster())
	if err != nil {
		return err
	}
	rows.hasActors = hasActors
	rows.begin()
	var before *query.Version
	if !s.since.At.IsZero() {
		if before, err = objects.At(object, query.Point{At: s.since.At.Add(-1)}); err != nil {
			return err
		}
	}
	for v, err := range objects.Versions(object, s.since.At, s.until.At) {
		if err != nil {
			return err
		}
		if s.has(v) {
			var made query.VersionReport
			if err := actors.AddTo(&made, v); err != nil {
				return err
			}
			rows.print(v, before, made.Actor)
		}
		before = v
	}
	return rows.flush()
}

// versionRows prints versions: rows of a table as they come, or a list.
type versionRows struct {
	w      io.Writer
	table  interface{ Flush() error }
	row    func(format string, args ...any)
	field  string
	output string
	list   []query.VersionReport
	count  int
	all    bool
	hidden int // updates of the status alone
	// hasActors: an audit log was recorded, so the table has users.
	hasActors bool
}

func newVersionRows(w io.Writer, field, output string) *versionRows {
	r := &versionRows{w: w, field: field, output: output, list: []query.VersionReport{}}
	if output == "table" {
		t := terminal.NewTable(w)
		r.table, r.row = t, func(format string, args ...any) { fmt.Fprintf(t, format, args...) }
	}
	return r
}

// begin prints the head of a table.
func (r *versionRows) begin() {
	columns := "CHANGED"
	if r.field != "" {
		columns = "FROM\tTO"
	}
	if r.output == "table" {
		r.row("TIME\tOPERATION\t%sMANAGER\tVERSION\t%s\n", columnWhere(r.hasActors, "USER"), columns)
	}
}

func (r *versionRows) print(v, before *query.Version, actor *query.ActorReport) {
	if r.field != "" {
		r.addField(v, before, actor)
		return
	}
	r.count++
	if r.output != "table" {
		report := v.Report(before)
		report.Actor = actor
		r.list = append(r.list, report)
		return
	}
	changes := v.ChangesSince(before)
	e := query.Entry{Version: v, HasBefore: before != nil, Changes: changes}
	if !r.all && ask.NoiseOf(&e) == ask.ClassStatus {
		r.hidden++
		return
	}
	r.row("%s\t%s\t%s%s\t%s\t%s\n", query.ShowTime(v.Time), operation(v),
		columnWhere(r.hasActors, terminal.OneLine(shortActor(actor))), terminal.OneLine(who(v)),
		terminal.OneLine(v.Event.ResourceVersion),
		terminal.OneLine(whatChanged(v, before != nil, changes, 0)))
}

// addField adds a version in which the field is another than in the one before.
func (r *versionRows) addField(v, before *query.Version, actor *query.ActorReport) {
	var old, now []byte
	if before != nil && !before.Deleted() {
		old = diff.Field(before.Event.Data, r.field)
	}
	if !v.Deleted() {
		now = diff.Field(v.Event.Data, r.field)
	}
	if string(old) == string(now) {
		return
	}
	r.count++
	if r.output != "table" {
		report := v.Report(nil)
		report.Actor, report.Changed = actor, []query.ChangeReport{{Field: r.field, Old: old, New: now}}
		r.list = append(r.list, report)
		return
	}
	r.row("%s\t%s\t%s%s\t%s\t%s\t%s\n", query.ShowTime(v.Time), operation(v),
		columnWhere(r.hasActors, terminal.OneLine(shortActor(actor))), terminal.OneLine(who(v)),
		terminal.OneLine(v.Event.ResourceVersion), shownValue(old), shownValue(now))
}

func (r *versionRows) flush() error {
	switch r.output {
	case "json":
		return terminal.PrintJSON(r.w, r.list)
	case "yaml":
		return terminal.PrintYAML(r.w, r.list)
	}
	if r.count == 0 {
		_, err := fmt.Fprintln(r.w, "nothing changed")
		return err
	}
	err := r.table.Flush()
	printHidden(r.w, map[string]int{ask.ClassStatus: r.hidden})
	return err
}

// operation returns what happened, and how it is known.
func operation(v *query.Version) string {
	op := string(v.Event.Op)
	switch {
	case v.Event.Initial:
		return op + " (first list)"
	case v.Event.Inferred:
		op += " (by a list)"
	}
	if since := v.Event.NotBefore; !since.IsZero() {
		after := since.Local().Format("15:04:05")
		if v.Time.Sub(since) > 12*time.Hour {
			after = query.ShowTime(since)
		}
		op += " (after " + after + ")"
	}
	return op
}

// maxChanged is how many fields a row names.
const maxChanged = 4

// whatChanged names the fields of an update in short: of changes, and of more.
func whatChanged(v *query.Version, hasBefore bool, changes []diff.Change, more int) string {
	if form := v.Form(); form != record.FormObject && !v.Deleted() {
		return "(" + notKnown(form) + ")"
	}
	if v.Event.Op != "updated" {
		return ""
	}
	if !hasBefore {
		return "(the version before is not known)"
	}
	return fieldNames(changes, more, true)
}

// fieldNames names fields, with short values if asked for.
func fieldNames(changes []diff.Change, more int, values bool) string {
	var names []string
	for _, c := range changes[:min(len(changes), maxChanged)] {
		name := c.Path
		if values && len(c.Old) > 0 && len(c.New) > 0 && len(c.Old) <= 12 && len(c.New) <= 12 {
			name += " " + string(c.Old) + "→" + string(c.New)
		}
		names = append(names, name)
	}
	if more += len(changes) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// notKnown says what is missing.
func notKnown(form record.Form) string {
	if form == record.FormMetadata {
		return "the stream has the metadata only"
	}
	if form == record.FormPatch {
		return "the stream has a patch to a version that is not known"
	}
	return "the stream has no object"
}

// shownValue returns a JSON value in a cell.
func shownValue(raw []byte) string {
	const longest = 60
	text := terminal.OneLine(string(raw))
	if text == "" {
		return "-"
	}
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

func newShowCommand() *cobra.Command {
	var at string
	var isWho bool
	cmd := &cobra.Command{
		Use:   "show KIND/NAME",
		Short: "Print an object as it was at a time",
		Long: `show prints an object as it was at a time, or in its last version. Which version that is,
when it began and which field manager made it goes to standard error; with --who also the
authenticated user, as 'bridge who' knows it.

The answer distinguishes an object that did not exist then from one of which the history does not
know that time, and from one that it has never seen.

` + timeHelp + `

Exit codes: 0; 1 when there was no such object, or it is not known; 2 when there is no history, or
with --who no user in it.`,
		Example: `  bridge show deploy/web -n shop --at 14:03 --who
  bridge show node/worker-1 --at "2h ago" -o json
  bridge show pod/web-0 -n shop --at 48213 --dir /var/lib/history     at a resourceVersion`,
		Args: cobra.RangeArgs(1, 2),
	}
	o := historyFlags(cmd, "yaml", "json")
	cmd.Flags().StringVar(&at, "at", "",
		"time or resourceVersion; none: the last version, also of an object that is gone")
	cmd.Flags().BoolVar(&isWho, "who", false, "name the authenticated user who made it")
	cmd.ValidArgsFunction = o.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := ask.ParsePoint("--at", at)
		if err != nil {
			return err
		}
		db, q, object, err := o.openObject(cmd, args, p)
		if err != nil {
			return err
		}
		defer db.Close()
		v, err := showVersion(cmd, q, object, p, isWho)
		if err != nil {
			return err
		}
		return Failed(printObject(cmd.OutOrStdout(), v, o.output))
	}
	return cmd
}

// showVersion returns the version at a point, the last one for the zero point. It prints which
// version that is, whether it may be another, and the user who made it if asked for.
func showVersion(
	cmd *cobra.Command, q *ask.Question, object *query.Object, p query.Point, isWho bool,
) (*query.Version, error) {
	v, holes, err := q.Existing(object, p)
	if err != nil {
		return nil, failedQuestion(err)
	}
	printHoles(cmd, holes)
	if err := warnEnd(cmd, q, []*record.Unit{object.Unit}, p); err != nil {
		return nil, err
	}
	asOf := ""
	if !p.IsZero() {
		asOf = " at " + p.String()
	}
	made := ""
	if v.Event.Manager != "" {
		made = " by " + who(v)
	}
	if v.LateChange != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: uncertain: %s was %s: it may have been that already%s\n",
			terminal.Plain(object.String()), terminal.Plain(v.LateChange.String()), asOf)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s%s: resourceVersion %s, %s at %s%s\n",
		terminal.Plain(object.String()), asOf,
		terminal.Plain(v.Event.ResourceVersion), operation(v), query.ShowTime(v.Time),
		terminal.Plain(made))
	if isWho {
		if err := showUser(cmd, q.History, v); err != nil {
			return nil, err
		}
	}
	form := v.Form()
	if form == record.FormNone {
		return nil, Failed(fmt.Errorf("%s: no body is known: %s", object, notKnown(form)))
	}
	if form != record.FormObject {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: this is not the whole object: %s\n", notKnown(form))
	}
	return v, nil
}

// showUser prints who made a version.
func showUser(cmd *cobra.Command, h *query.Questions, v *query.Version) error {
	actors := ask.NewActors(h)
	isRecorded, err := actors.IsRecorded(v.Unit.Cluster())
	if err == nil && !isRecorded {
		return Refused(ask.ErrNoAudit)
	}
	var made query.VersionReport
	if err := cmp.Or(err, actors.AddTo(&made, v)); err != nil {
		return Failed(err)
	}
	r := whoReport{Actor: cmp.Or(made.Actor, noUsers)}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "bridge: user: %s\n", terminal.Plain(r.how()))
	return err
}

func printObject(w io.Writer, v *query.Version, output string) error {
	if !json.Valid(v.Event.Data) {
		_, err := fmt.Fprintf(w, "%s\n", terminal.Plain(string(v.Event.Data)))
		return err
	}
	if output == "json" {
		return terminal.PrintIndented(w, v.Event.Data)
	}
	return terminal.PrintYAML(w, json.RawMessage(v.Event.Data))
}

func newDiffCommand() *cobra.Command {
	var from, to string
	var isWho bool
	cmd := &cobra.Command{
		Use:   "diff KIND/NAME",
		Short: "Compare an object at two times",
		Long: `diff prints how an object differs between two times, as a unified diff of its YAML, or as
JSON Patch (RFC 6902). Without --to it is the last version; without --from the one before that of
--to.

` + timeHelp + `

Exit codes: 0, whether or not there is a difference; 1 when there was no such object at one of the
times, or it is not known; 2 when there is no history, or with --who no user in it.`,
		Example: `  bridge diff deploy/web -n shop                              what the last change changed
  bridge diff deploy/web -n shop --from 13:00 --to 14:03
  bridge diff deploy/web -n shop --from "1d ago" -o patch`,
		Args: cobra.RangeArgs(1, 2),
	}
	o := historyFlags(cmd, "diff", "patch")
	cmd.Flags().StringVar(&from, "from", "",
		"time or resourceVersion of the older version; none: the one before --to")
	cmd.Flags().StringVar(&to, "to", "",
		"time or resourceVersion of the newer version; none: the last one")
	cmd.Flags().BoolVar(&isWho, "who", false, "name the authenticated user who made the newer version, and that of --from")
	cmd.ValidArgsFunction = o.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		older, err := ask.ParsePoint("--from", from)
		newer, toErr := ask.ParsePoint("--to", to)
		if err := errors.Join(err, toErr); err != nil {
			return err
		}
		db, q, object, err := o.openObject(cmd, args, newer)
		if err != nil {
			return err
		}
		defer db.Close()
		b, err := showVersion(cmd, q, object, newer, isWho)
		if err != nil {
			return err
		}
		var a *query.Version
		if older.IsZero() {
			a, err = q.Previous(object, b)
			err = failedQuestion(err)
		} else {
			a, err = showVersion(cmd, q, object, older, isWho)
		}
		if err != nil {
			return err
		}
		return Failed(printDiff(cmd.OutOrStdout(), a, b, o.output, wantsColour(cmd)))
	}
	return cmd
}

func printDiff(w io.Writer, a, b *query.Version, output string, colour bool) error {
	if err := ask.CheckComparable(a, b); err != nil {
		return err
	}
	if output == "patch" {
		return terminal.PrintIndented(w, diff.Diff(a.Event.Data, b.Event.Data))
	}
	var older, newer strings.Builder
	if err := errors.Join(printObject(&older, a, "yaml"), printObject(&newer, b, "yaml")); err != nil {
		return err
	}
	title := func(v *query.Version) string {
		return fmt.Sprintf("%s\t%s (resourceVersion %s)", terminal.OneLine(v.Event.PartitionKey),
			query.ShowTime(v.Time), terminal.OneLine(v.Event.ResourceVersion))
	}
	return writeUnified(w, title(a), older.String(), title(b), newer.String(), colour)
}

var lineColours = map[byte]string{'-': "\x1b[31m", '+': "\x1b[32m", '@': "\x1b[36m"}

// writeUnified writes a unified diff of two texts whose titles are lines; nothing but a remark when
// the texts are equal.
func writeUnified(w io.Writer, titleA, a, titleB, b string, colour bool) error {
	text := textdiff.Diff(titleA, []byte(a), titleB, []byte(b))
	_, hunks, differs := strings.Cut(string(text), "\n") // behind the line of the command diff
	if !differs {
		_, err := fmt.Fprintln(w, "no difference")
		return err
	}
	out := bufio.NewWriter(w)
	for line := range strings.Lines(hunks) {
		start := lineColours[line[0]]
		line = terminal.Plain(strings.TrimSuffix(line, "\n"))
		if colour && start != "" {
			line = start + line + "\x1b[0m"
		}
		fmt.Fprintln(out, line)
	}
	return out.Flush()
}
