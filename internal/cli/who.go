package cli

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// whoCommand is one call of bridge who.
type whoCommand struct {
	*historyOptions
	logs       []string
	isComplete bool
	field      string
	span       span
}

func newWhoCommand() *cobra.Command {
	w := &whoCommand{}
	var since, until string
	cmd := &cobra.Command{
		Use:   "who KIND/NAME",
		Short: "Name the authenticated user of each change of an object, from the audit log",
		Long: `who lists the versions of one object as 'bridge history' does, each with the authenticated user who
made it. The history knows what changed, the API server's audit log knows the users, and the
admission policies of 'bridge audit policy' join them. A user is right or absent: where the log does
not show who made a change, the reason is in its place.

The log is what the history sink has recorded (key audit), or with --audit a file, or a directory
with all files of all API servers, also compressed ones (.gz).

With --field it answers in one line: who gave the field its value.

For a ReplicaSet or a Pod the history says, where that can be proven, whose change of the Deployment
or ReplicaSet the controller has carried out: the INITIATOR. With --audit there is none.

GRADE says how a user is known: exact, or complete-log where the log must have every request for it,
as a log file in blocking mode has. That is given only with --complete, or the key audit.complete.

` + timeHelp + `

Exit codes: 0, also where users are not known; 1 when the object is not known, or something can't be
read; 2 when there is no history.`,
		Example: `  bridge who deploy/web -n shop
  bridge who deploy/web -n shop --audit /var/log/kubernetes/audit
  bridge who deploy/web -n shop --audit audit.log --field spec.replicas`,
		Args: cobra.RangeArgs(1, 2),
	}
	w.historyOptions = historyFlags(cmd, "table", "json", "yaml")
	cmd.Flags().StringSliceVar(&w.logs, "audit", nil,
		"file or directory of the API server's audit log (several: again)")
	cmd.Flags().BoolVar(&w.isComplete, "complete", false, "the log has every request since the first version")
	cmd.Flags().StringVar(&w.field, "field", "", "name who gave this field its value, as spec.replicas")
	cmd.Flags().StringVar(&since, "since", "", "begin at this time")
	cmd.Flags().StringVar(&until, "until", "", "end at this time")
	cmd.ValidArgsFunction = w.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if w.span, err = parseSpan(since, until); err != nil {
			return err
		}
		return w.run(cmd, args)
	}
	return cmd
}

// whoReport is a version with who made it, as JSON.
type whoReport struct {
	Time      time.Time          `json:"time"`
	Operation string             `json:"operation"`
	Version   string             `json:"resourceVersion"`
	Actor     *query.ActorReport `json:"actor"`
	// Initiator is nil where it is not proven.
	Initiator *query.InitiatorReport `json:"initiator,omitempty"`

	changed  string
	isWanted bool
}

// noUsers is for a version of an informer whose stream names no users, where that of another does.
var noUsers = &query.ActorReport{Unknown: "it is of a unit without users"}

func (w *whoCommand) run(cmd *cobra.Command, args []string) error {
	db, q, object, err := w.openObject(cmd, args, w.span.until)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := w.answer(cmd, q.History, object)
	if errors.Is(err, ask.ErrNoAudit) {
		return Refused(err)
	}
	if err != nil {
		return Failed(err)
	}
	if err := warnEnd(cmd, q, []*record.Unit{object.Unit}, w.span.until); err != nil {
		return err
	}
	kept := rows[:0]
	for i := range rows {
		if rows[i].isWanted {
			kept = append(kept, rows[i])
		}
	}
	return Failed(w.print(cmd.OutOrStdout(), kept))
}

// answer names who made each version, by the log of the files that are given, or by what the
// history has.
func (w *whoCommand) answer(
	cmd *cobra.Command, h *query.Questions, object *query.Object,
) (rows []whoReport, err error) {
	holes, err := h.Coverage.Holes(object, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	printHoles(cmd, holes)
	add := func(v, before *query.Version) *whoReport {
		r := whoReport{Time: v.Time, Operation: operation(v), Version: v.Event.ResourceVersion}
		r.changed, r.isWanted = w.changeOf(v, before)
		rows = append(rows, r)
		return &rows[len(rows)-1]
	}
	if len(w.logs) == 0 {
		err := w.recorded(h, object, func(v, before *query.Version, made *query.VersionReport) {
			r := add(v, before)
			r.Actor, r.Initiator = made.Actor, made.Initiator
		})
		return rows, err
	}
	// All versions are read: also a later one shows whether a request was the one.
	known, err := audit.Load(h.Objects, object, time.Time{}, time.Time{}, holes,
		func(v, before *query.Version) { add(v, before) })
	if err != nil {
		return nil, err
	}
	requests, err := w.requests(cmd, known)
	if err != nil {
		return nil, err
	}
	answers, err := known.Answers(requests)
	for i := range answers {
		rows[i].Actor = answers[i].Report()
	}
	return rows, err
}

// recorded passes each version, with the one before and who made it.
func (w *whoCommand) recorded(
	h *query.Questions, object *query.Object, each func(v, before *query.Version, made *query.VersionReport),
) error {
	actors := ask.NewActors(h)
	isRecorded, err := actors.IsRecorded(object.Unit.Cluster())
	if err == nil && !isRecorded {
		err = fmt.Errorf("%w, or name its files with --audit", ask.ErrNoAudit)
	}
	if err != nil {
		return err
	}
	initiators := ask.NewInitiators(actors)
	var before *query.Version
	for v, err := range h.Objects.Versions(object, time.Time{}, time.Time{}) {
		if err != nil {
			return err
		}
		var made query.VersionReport
		if err := cmp.Or(actors.AddTo(&made, v), initiators.AddTo(&made, v, before)); err != nil {
			return err
		}
		made.Actor = cmp.Or(made.Actor, noUsers)
		each(v, before, &made)
		before = v
	}
	return nil
}

// requests are those of the files that are given.
func (w *whoCommand) requests(cmd *cobra.Command, known *audit.History) (audit.Requests, error) {
	log := known.Log(w.isComplete)
	for _, path := range w.logs {
		if err := readAudit(log, path); err != nil {
			return nil, err
		}
	}
	switch {
	case log.Requests == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s: no write is in this log: does its policy leave writes out?\n",
			terminal.Plain(strings.Join(w.logs, ", ")))
	case log.Noted == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "bridge: no write in this log has a note of the admission policies: "+
			"see 'bridge audit policy'")
	}
	if log.Bad > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s can't be read, so requests may be missing; the first: %s\n",
			terminal.Amount(log.Bad, "line"), terminal.Plain(log.FirstBad))
	}
	return log, nil
}

// readAudit reads a file of the log, or all files of a directory.
func readAudit(log *audit.Log, path string) error {
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path) //nolint:gosec // who can put a link there can change the log
		if err != nil {
			return err
		}
		defer file.Close()
		in := bufio.NewReader(file)
		if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
			unpacked, err := gzip.NewReader(in)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return log.Read(path, unpacked)
		}
		return log.Read(path, in)
	})
}

// changeOf says what a version changed, and whether it is asked for.
func (w *whoCommand) changeOf(v, before *query.Version) (what string, isWanted bool) {
	s := w.span
	switch {
	case !s.has(v), v.Time.Before(s.since.At), !s.until.At.IsZero() && v.Time.After(s.until.At):
		return "", false
	case w.field == "":
		return whatChanged(v, before != nil, v.ChangesSince(before), 0), true
	}
	old, now := fieldOf(before, w.field), fieldOf(v, w.field)
	return w.field + " " + shownValue(old) + " → " + shownValue(now), string(old) != string(now)
}

func fieldOf(v *query.Version, field string) []byte {
	if v == nil || v.Deleted() {
		return nil
	}
	return diff.Field(v.Event.Data, field)
}

func (w *whoCommand) print(out io.Writer, rows []whoReport) error {
	if w.field != "" {
		if len(rows) == 0 {
			return fmt.Errorf("%s did not change", w.field)
		}
		rows = rows[len(rows)-1:]
	}
	switch {
	case w.output == "json":
		return terminal.PrintJSON(out, rows)
	case w.output == "yaml":
		return terminal.PrintYAML(out, rows)
	case w.field != "":
		r := &rows[0]
		_, err := fmt.Fprintf(out, "%s  %s: %s (version %s)\n", query.ShowTime(r.Time),
			terminal.OneLine(r.how()), terminal.OneLine(r.changed), terminal.OneLine(r.Version))
		return err
	}
	hasInitiators := slices.ContainsFunc(rows, func(r whoReport) bool { return r.Initiator != nil })
	t := terminal.NewTable(out)
	fmt.Fprintf(t, "TIME\tOPERATION\tUSER\tGRADE\t%sVERSION\tCHANGED\n", columnWhere(hasInitiators, "INITIATOR"))
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s%s\t%s\n", query.ShowTime(r.Time), r.Operation,
			terminal.OneLine(r.Actor.String()), cmp.Or(r.Actor.Grade, "-"),
			columnWhere(hasInitiators, terminal.OneLine(cmp.Or(r.Initiator.String(), "-"))),
			terminal.OneLine(r.Version), terminal.OneLine(r.changed))
	}
	return t.Flush()
}

// columnWhere is a cell and its end, where the table has the column.
func columnWhere(has bool, cell string) string {
	if !has {
		return ""
	}
	return cell + "\t"
}

// shortActor names a user; "-" where there is none: bridge who says why.
func shortActor(a *query.ActorReport) string {
	if a == nil || a.User == "" {
		return "-"
	}
	return a.String()
}

// how is who, with the request.
func (r *whoReport) how() string {
	a := r.Actor
	if a.User == "" {
		return "not known: " + a.Unknown
	}
	verb := a.Verb
	if a.Subresource != "" {
		verb += " of " + a.Subresource
	}
	how := fmt.Sprintf("%s (%s, %s)", a, verb, a.Grade)
	if r.Initiator != nil {
		how += " for " + r.Initiator.String()
	}
	return how
}
