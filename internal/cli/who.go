package cli

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

func newAuditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Prepare a cluster for 'bridge who'",
	}
	var level string
	policy := &cobra.Command{
		Use:   "policy",
		Short: "Print the policies that let a change be joined with the audit log",
		Long: `policy prints an admission policy and its binding. They refuse and change nothing: they have the
API server note in its audit log which version of an object a request has seen. 'bridge who' needs
that to name the user of a change.

With --log it prints an audit policy instead, for --audit-policy-file of the API server. Metadata
has a line for each write; RequestResponse has its answer too, with which every create and update has
its user, and is larger. Reads are left out, and so is what Secrets hold.

Kubernetes 1.30 or later takes them. The log must have all API servers of the cluster.`,
		Example: `  bridge audit policy | kubectl apply -f -
  bridge audit policy --log RequestResponse > /etc/kubernetes/audit-policy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := audit.Policy()
			switch audit.Level(level) {
			case "":
			case audit.Metadata, audit.RequestResponse:
				text = audit.LogPolicy(audit.Level(level))
			default:
				return fmt.Errorf("--log %s: want %s or %s", level, audit.Metadata, audit.RequestResponse)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return Failed(err)
		},
	}
	policy.Flags().StringVar(&level, "log", "", "print the audit policy of this level: Metadata or RequestResponse")
	_ = policy.RegisterFlagCompletionFunc("log", cobra.FixedCompletions(
		[]string{string(audit.Metadata), string(audit.RequestResponse)}, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(policy, newAuditCheckCommand())
	return cmd
}

// auditCheck is one call of bridge audit check.
type auditCheck struct {
	*historyOptions
	logs       []string
	isComplete bool
	patience   time.Duration
	check      *audit.Check
	// Of the last log that was read.
	log *audit.Log
}

func newAuditCheckCommand() *cobra.Command {
	a := &auditCheck{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Write to a scratch namespace in every way, and see whose user the audit log has",
		Long: `check makes a namespace, writes to objects in it in every way that there is, and removes it. Then it
reads the audit log as 'bridge who' does, and says for each way to write whether its user is known
here, how, or why not. So it shows whether the policies of 'bridge audit policy' are in place, and
what a provider withholds.

It needs the right to make a namespace and to write there; what the user may not do is not tried.
The log is what the history sink records (key audit), or files (--audit).

Exit codes: 0 when the user of most writes is known and none is wrong; 1 when not; 2 when it can't
begin.`,
		Example: `  bridge audit check --audit /var/log/kubernetes/audit.log
  bridge audit check --config bridge.yaml        what its history records`,
		Args: cobra.NoArgs,
	}
	a.historyOptions = &historyOptions{settings: NewSettings(cmd, "state.dir", "kubernetes.kubeconfig", "kubernetes.context")}
	a.placeFlags(cmd)
	OutputFlag(cmd, &a.output, "table", "json", "yaml")
	cmd.Flags().StringSliceVar(&a.logs, "audit", nil, "file or directory of the API server's audit log (several: again)")
	cmd.Flags().BoolVar(&a.isComplete, "complete", false, "the log has every request")
	cmd.Flags().DurationVar(&a.patience, "wait", 90*time.Second, "how long to wait for the log")
	cmd.RunE = a.run
	return cmd
}

func (a *auditCheck) run(cmd *cobra.Command, _ []string) (err error) {
	c, err := a.settings.Load()
	if err != nil {
		return err
	}
	config, _, err := kube.RESTConfig(c.Kubernetes.Kubeconfig, c.Kubernetes.Context, 0, 0)
	if err != nil {
		return Refused(err)
	}
	client, server, err := kube.HTTPClient(config)
	if err != nil {
		return Refused(err)
	}
	a.check = &audit.Check{Client: client, Server: server, Namespace: fmt.Sprintf("kubebridge-check-%d", time.Now().UnixMilli())}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
		defer cancel()
		err = errors.Join(err, a.check.Remove(ctx))
	}()
	fmt.Fprintf(cmd.ErrOrStderr(), "bridge: writing to namespace %s\n", a.check.Namespace)
	if err := a.check.Write(cmd.Context()); err != nil {
		return Refused(err)
	}
	answers, err := a.wait(cmd)
	if errors.Is(err, ask.ErrNoAudit) {
		return Refused(err)
	}
	if err != nil {
		return Failed(err)
	}
	return Failed(errors.Join(a.print(cmd, answers), a.judge(answers)))
}

// wait asks until every user is known, the log has brought nothing more for a while, or the time is
// over.
func (a *auditCheck) wait(cmd *cobra.Command) ([]audit.CheckAnswer, error) {
	const while = 10 * time.Second
	least, changed := 0, time.Now()
	for end := time.Now().Add(a.patience); ; {
		answers, err := a.check.Answers(func(wanted map[string]bool) (audit.Requests, error) { return a.requests(cmd, wanted) })
		unknown := 0
		for _, w := range answers {
			if w.Unknown != "" {
				unknown++
			}
		}
		if unknown < least || least == 0 {
			least, changed = unknown, time.Now()
		}
		isStill := unknown < len(answers)/2 && time.Since(changed) > while
		if err != nil || unknown == 0 || isStill || time.Now().After(end) {
			return answers, err
		}
		select {
		case <-cmd.Context().Done():
			return answers, context.Cause(cmd.Context())
		case <-time.After(2 * time.Second):
		}
	}
}

func (a *auditCheck) requests(cmd *cobra.Command, wanted map[string]bool) (audit.Requests, error) {
	if len(a.logs) > 0 {
		a.log = audit.NewLog(wanted, a.isComplete)
		for _, path := range a.logs {
			if err := readAudit(a.log, path); err != nil {
				return nil, err
			}
		}
		return a.log, nil
	}
	db, err := a.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	cluster, err := a.question(cmd, db.Questions).OneCluster()
	if err != nil {
		return nil, err
	}
	recorded, err := audit.NewRecorded(db.Questions, cluster)
	if err == nil && recorded == nil {
		err = ask.ErrNoAudit
	}
	if err != nil {
		return nil, err
	}
	return recorded.Read(wanted)
}

// judge says what is missing.
func (a *auditCheck) judge(answers []audit.CheckAnswer) error {
	known := 0
	for _, w := range answers {
		if w.Wrong != "" {
			return fmt.Errorf("%s: %s is named, who did not write it: please report this", w.Write, w.Wrong)
		}
		if w.Unknown == "" {
			known++
		}
	}
	switch {
	case 2*known > len(answers):
		return nil
	case a.log != nil && a.log.Requests == 0:
		return errors.New("the log has no writes: its policy leaves them out, or it is of another API server")
	case a.log != nil && a.log.Noted == 0:
		return errors.New("no write in the log has a note of the admission policy: apply 'bridge audit policy', and wait a second")
	}
	return fmt.Errorf("of %d ways to write the user of %d is known", len(answers), known)
}

func (a *auditCheck) print(cmd *cobra.Command, answers []audit.CheckAnswer) error {
	switch a.output {
	case "json":
		return terminal.PrintJSON(cmd.OutOrStdout(), answers)
	case "yaml":
		return terminal.PrintYAML(cmd.OutOrStdout(), answers)
	}
	t := terminal.NewTable(cmd.OutOrStdout())
	fmt.Fprintln(t, "WRITE\tUSER")
	for _, w := range answers {
		answer := cmp.Or(string(w.Grade), "-")
		if w.Unknown != "" {
			answer = "(" + w.Unknown + ")"
		}
		fmt.Fprintf(t, "%s\t%s\n", w.Write, terminal.OneLine(answer))
	}
	return t.Flush()
}

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
admission policy of 'bridge audit policy' joins them. A user is right or absent: where the log does
not show who made a change, the reason is in its place.

The log is what the history sink has recorded (key audit), or with --audit a file, or a directory
with all files of all API servers, also compressed ones (.gz).

With --field it answers in one line: who gave the field its value.

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

	changed  string
	isWanted bool
}

func (w *whoCommand) run(cmd *cobra.Command, args []string) error {
	db, q, object, err := w.openObject(cmd, args, w.span.until)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, answers, err := w.join(cmd, q.History, object)
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
			rows[i].Actor = answers[i].Report()
			kept = append(kept, rows[i])
		}
	}
	return Failed(w.print(cmd.OutOrStdout(), kept))
}

// join reads all versions: also a later one shows whether a request was the one.
func (w *whoCommand) join(
	cmd *cobra.Command, h *query.Questions, object *query.Object,
) (rows []whoReport, answers []audit.Answer, err error) {
	holes, err := h.Coverage.Holes(object, time.Time{}, time.Time{})
	if err != nil {
		return nil, nil, err
	}
	printHoles(cmd, holes)
	known, err := audit.Load(h.Objects, object, time.Time{}, time.Time{}, holes,
		func(v, before *query.Version) {
			r := whoReport{Time: v.Time, Operation: operation(v), Version: v.Event.ResourceVersion}
			r.changed, r.isWanted = w.changeOf(v, before)
			rows = append(rows, r)
		})
	if err != nil {
		return nil, nil, err
	}
	requests, err := w.requests(cmd, h, object, known)
	if err != nil {
		return nil, nil, err
	}
	answers, err = known.Answers(requests)
	return rows, answers, err
}

// requests are those of the files that are given, or those that the history has recorded.
func (w *whoCommand) requests(
	cmd *cobra.Command, h *query.Questions, object *query.Object, known *audit.History,
) (audit.Requests, error) {
	if len(w.logs) == 0 {
		recorded, err := audit.NewRecorded(h, object.Unit.Cluster())
		if err == nil && recorded == nil {
			err = fmt.Errorf("%w, or name its files with --audit", ask.ErrNoAudit)
		}
		return recorded, err
	}
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
		fmt.Fprintln(cmd.ErrOrStderr(), "bridge: no write in this log has a note of the admission policy: "+
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
	t := terminal.NewTable(out)
	fmt.Fprintf(t, "TIME\tOPERATION\tUSER\tGRADE\tVERSION\tCHANGED\n")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", query.ShowTime(r.Time), r.Operation,
			terminal.OneLine(r.Actor.String()), cmp.Or(r.Actor.Grade, "-"), terminal.OneLine(r.Version),
			terminal.OneLine(r.changed))
	}
	return t.Flush()
}

// userColumn is a cell and its end, where the table has users.
func userColumn(hasActors bool, cell string) string {
	if !hasActors {
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
	return fmt.Sprintf("%s (%s, %s)", a, verb, a.Grade)
}
