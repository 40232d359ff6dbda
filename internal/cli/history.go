package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/kube"
)

func historyCommands() []*cobra.Command {
	return []*cobra.Command{
		newArchiveCommand(), newHistoryCommand(), newWhoCommand(), newShowCommand(), newDiffCommand(),
		newTimelineCommand(), newStateCommand(), newCoverageCommand(), newServeCommand(),
		newMCPCommand(), newAuditCommand(),
	}
}

// historyOptions are the flags of every question to a history.
type historyOptions struct {
	settings  *Settings
	dir       string
	namespace string
	all       bool // namespaces, of the commands that have the flag
	cluster   string
	output    string
}

func historyFlags(cmd *cobra.Command, outputs ...string) *historyOptions {
	o := &historyOptions{settings: NewSettings(cmd, "state.dir")}
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace")
	if len(outputs) > 0 {
		OutputFlag(cmd, &o.output, outputs...)
	}
	o.placeFlags(cmd)
	return o
}

// placeFlags adds the flags that say which history is asked.
func (o *historyOptions) placeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "dir", "",
		"directory of the history; none: that of the bridge with this "+
			"configuration, in its state directory")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "cluster, where the history has several")
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.RegisterFlagCompletionFunc("cluster",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			db, err := o.open()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			defer db.Close()
			return db.Questions.Resources.Clusters(), cobra.ShellCompDirectiveNoFileComp
		})
}

func (o *historyOptions) directory() (string, error) {
	if o.dir != "" {
		return o.dir, nil
	}
	c, err := o.settings.Load()
	if err != nil {
		return "", err
	}
	return c.HistoryDir(), nil
}

// ownCluster returns the cluster that a bridge with this configuration reads, "" where that can't
// be said.
func (o *historyOptions) ownCluster() string {
	c, err := o.settings.LoadSections([]string{"cluster", "kubernetes"})
	if err != nil {
		return ""
	}
	k := &c.Kubernetes
	_, contextCluster, _ := kube.RESTConfig(k.Kubeconfig, k.Context, k.QPS, k.Burst)
	return cmp.Or(c.Cluster, contextCluster)
}

// open opens the history. Its writer need not stop.
func (o *historyOptions) open() (*history.DB, error) {
	dir, err := o.directory()
	if err != nil {
		return nil, err
	}
	db, err := history.Read(history.Options{Dir: dir})
	if errors.Is(err, history.ErrNone) && o.dir == "" {
		err = fmt.Errorf("%w; give the directory of one with --dir, or make one of a stream "+
			"with 'bridge archive'", err)
	}
	return db, Refused(err)
}

// openQuestion opens the history for a question of these flags. Close the history.
func (o *historyOptions) openQuestion(
	cmd *cobra.Command,
) (*history.DB, *ask.Question, error) {
	db, err := o.open()
	if err != nil {
		return nil, nil, err
	}
	return db, o.question(cmd, db.Questions), nil
}

// question asks about the cluster of the configuration where the history has several, and reports
// that.
func (o *historyOptions) question(cmd *cobra.Command, h *query.Questions) *ask.Question {
	q := &ask.Question{
		History: h, Cluster: o.cluster, Namespace: o.namespace, ClusterOption: "--cluster",
	}
	if o.all {
		q.Namespace = "*"
	}
	own := ""
	if o.cluster == "" && len(h.Resources.Clusters()) > 1 {
		own = o.ownCluster()
	}
	if others := q.ChooseCluster(own); len(others) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: this is of cluster %s; --cluster is for %s\n",
			terminal.Plain(q.Cluster), terminal.Plain(strings.Join(others, ", ")))
	}
	return q
}

// failedQuestion returns the error of a question with the exit code.
func failedQuestion(err error) error {
	if ask.IsBad(err) {
		return Refused(err)
	}
	return Failed(err)
}

// openObject opens the history and finds the object that the arguments name, by the names that
// resources had at a point. Close the history.
func (o *historyOptions) openObject(
	cmd *cobra.Command, args []string, at query.Point,
) (*history.DB, *ask.Question, *query.Object, error) {
	kind, name, err := objectArgs(args)
	if err != nil {
		return nil, nil, nil, err
	}
	db, q, err := o.openQuestion(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	object, notes, err := q.Find(kind, name, at)
	if err != nil {
		return nil, nil, nil, errors.Join(failedQuestion(err), db.Close())
	}
	for _, note := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s\n", terminal.Plain(note))
	}
	return db, q, object, nil
}

// objectArgs takes "deploy/web", or "deploy" and "web".
func objectArgs(args []string) (kind, name string, err error) {
	if len(args) == 2 {
		return args[0], args[1], nil //nolint:gosec // there are two
	}
	kind, name, ok := ask.SplitObject(args[0])
	if !ok {
		return "", "", fmt.Errorf("%q: want KIND/NAME, as deploy/web, or KIND NAME", args[0])
	}
	return kind, name, nil
}

// kindArgs returns the resources that the arguments and --kind name: "pods", "deploy,cm".
func kindArgs(args, kinds []string) (list []string, err error) {
	for _, arg := range args {
		for name := range strings.SplitSeq(arg, ",") {
			if kind, object, isObject := ask.SplitObject(name); isObject {
				return nil, fmt.Errorf("%q: want kinds, as deploy,cm; one object has 'bridge show %s/%s'", name,
					kind, object)
			}
			list = append(list, name)
		}
	}
	return append(list, kinds...), nil
}

// completeKinds lets shells complete the resources that a history has.
func (o *historyOptions) completeKinds(
	*cobra.Command, []string, string,
) (list []cobra.Completion, _ cobra.ShellCompDirective) {
	db, err := o.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer db.Close()
	for _, u := range db.Questions.Resources.Units() {
		if u.Resource != "" {
			list = append(list, u.Resource)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), cobra.ShellCompDirectiveNoFileComp
}

// timeHelp says what --at, --since and --until take.
const timeHelp = `Times are 14:03 or 14:03:05 (the last one that was, in the local time zone), 2h
ago, "2026-11-22 14:03", RFC 3339 (2026-11-22T14:03:00Z), or a resourceVersion. Answers show the
time with its zone. The API server's times are whole seconds.`

// warnEnd reports that the history of units of one cluster ends before a point, of which the zero
// one is now.
func warnEnd(cmd *cobra.Command, q *ask.Question, units []*record.Unit, p query.Point) error {
	end, err := q.EndsBefore(units, p)
	if err == nil && !end.IsZero() {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"bridge: the newest event in this history is of %s: later changes may be missing\n",
			query.ShowTime(end))
	}
	return Failed(err)
}

// warnRemoved reports that older versions were removed before horizon, zero for none.
func warnRemoved(cmd *cobra.Command, horizon time.Time, err error) error {
	if err == nil && !horizon.IsZero() {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"bridge: this history is kept from %s on (retention): older versions were removed, but for "+
				"the last one before\n", query.ShowTime(horizon))
	}
	return Failed(err)
}

// printHoles reports what may be missing, and unwatched times: once for all resources of which the
// same is to be said.
func printHoles(cmd *cobra.Command, holes []*query.Notice) {
	const most = 5
	groups := query.GroupNotices(holes)
	for i, g := range groups {
		if i == most {
			fmt.Fprintf(cmd.ErrOrStderr(), "bridge: and %d more\n", len(groups)-most)
			break
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s\n", terminal.Plain(g.Warning()))
	}
}

// completeObjects lets shells complete the resources that a history has.
func (o *historyOptions) completeObjects(
	_ *cobra.Command, args []string, toComplete string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	db, err := o.open()
	if err != nil || len(args) > 1 {
		return nil, none
	}
	defer db.Close()
	kind, begin, named := strings.Cut(toComplete, "/")
	if len(args) == 1 {
		kind, begin, named = args[0], toComplete, true
	}
	var list []cobra.Completion
	if !named {
		for _, u := range db.Questions.Resources.Units() {
			if u.Resource != "" {
				list = append(list, u.Resource+"/")
			}
		}
		slices.Sort(list)
		return slices.Compact(list), none | cobra.ShellCompDirectiveNoSpace
	}
	units, _ := db.Questions.Resources.Resolve(kind, o.cluster, query.Point{})
	for _, u := range units {
		for object, err := range db.Questions.Objects.All(u, o.namespace) {
			if err != nil || len(list) > 1000 {
				break
			}
			if strings.HasPrefix(object.Name, begin) {
				list = append(list, strings.TrimSuffix(toComplete, begin)+object.Name)
			}
		}
	}
	return list, none
}

// wantsColour follows no-color.org.
func wantsColour(cmd *cobra.Command) bool {
	return terminal.Is(cmd.OutOrStdout()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// who made a change, as far as it is known.
func who(v *query.Version) string { return cmp.Or(v.Manager(), "-") }

func newCoverageCommand() *cobra.Command {
	var since string
	var kinds []string
	cmd := &cobra.Command{
		Use:   "coverage [KIND,...]",
		Short: "Show what was watched without a break, and the gaps with their reasons",
		Long: `coverage lists, for each resource, the intervals of resourceVersions that were read without a
break, and the gaps between them with their reasons. Every version of an interval is in the history;
an independent reader of etcd can check that.

A bridge that stops and continues its watch where it had stopped leaves no gap: it has read
everything, but late. UNWATCHED is the longest time without a watch; when a change was made
in that time is known by its bounds only, and answers about it say so.

Gaps are: expired (the API server had forgotten versions), rewound (etcd was restored), interrupted,
takeover, unreadable, forgotten (the bridge's state was lost), dropped (a sink was too slow),
quarantined (one version could not be parsed), removed (the stream had removed messages before they
were read), recreated (the stream was), retention; unknown where the stream does not say what it is
complete up to. An interval ends where the stream said so last: see progress at the sink.

` + timeHelp + `

Exit codes: 0; 1 when the history can't be read; 2 when there is none.`,
		Example: `  bridge coverage
  bridge coverage pods,deploy -n shop --since 1d
  bridge coverage -o json | jq 'select(.gap)'`,
		Args: cobra.MaximumNArgs(1),
	}
	o := historyFlags(cmd, "table", "json")
	o.namespace, cmd.Flags().Lookup("namespace").DefValue = "*", ""
	cmd.Flags().Lookup("namespace").Usage = "namespace, where informers read only some; none: all"
	cmd.Flags().StringVar(&since, "since", "", "leave out what had ended by this time")
	cmd.ValidArgsFunction = o.completeKinds
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, argErr := kindArgs(args, kinds)
		p, err := ask.ParsePoint("--since", since)
		if p.Version > 0 {
			err = errors.New("--since of a coverage is a time")
		}
		if err := errors.Join(argErr, err); err != nil {
			return err
		}
		db, q, err := o.openQuestion(cmd)
		if err != nil {
			return err
		}
		defer db.Close()
		intervals, err := q.Coverage(list, p.At)
		if err != nil {
			return failedQuestion(err)
		}
		return Failed(printCoverage(cmd, intervals, o.output))
	}
	return cmd
}

func printCoverage(cmd *cobra.Command, list []query.Interval, output string) error {
	w := cmd.OutOrStdout()
	if output == "json" {
		for _, i := range list {
			if err := terminal.PrintLine(w, i); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "nothing was watched")
		return err
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "RESOURCE\tINFORMER\tSTATE\tFROM\tTO\tSINCE\tUNTIL\tUNWATCHED")
	for _, i := range list {
		state, unwatched := "complete", "-"
		if i.Gap != "" {
			state = "gap: " + i.Gap
		}
		if longest := i.LongestUnwatched(); longest > 0 {
			unwatched = longest.Round(time.Second).String()
		}
		resource := i.Resource
		if of := cmp.Or(i.Object, i.Namespace); of != "" {
			resource += "/" + of
		}
		informer := i.Informer
		if i.Shard != "" {
			informer += " (shard " + i.Shard + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.OneLine(resource),
			terminal.OneLine(informer), terminal.OneLine(state), terminal.OneLine(cmp.Or(i.From, "-")),
			terminal.OneLine(cmp.Or(i.To, "-")), shownTime(i.Since), shownTime(i.Until), unwatched)
	}
	return t.Flush()
}

func shownTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return query.ShowTime(t)
}

func newHistoryCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read a whole history, and report damage",
		Long: `check reads every table, each version of each object, and what the stream says about itself.
It changes nothing, and the writer need not stop.

Exit codes: 0 when everything can be read; 1 when something can't; 2 when there is no history.`,
		Example: `  bridge history check
  bridge history check --dir /var/lib/history`,
		Args: cobra.NoArgs,
	}
	o := historyFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		db, err := o.open()
		if errors.Is(err, history.ErrDamaged) {
			return Failed(err)
		}
		if err != nil {
			return err
		}
		defer db.Close()
		c, err := db.Check(cmd.Context())
		if err != nil {
			return Failed(err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "good: %s\n", checked(c))
		return nil
	}
	return cmd
}

func checked(c history.Checked) string {
	return fmt.Sprintf("%s of %s, %s", terminal.Amount(c.Versions, "version"),
		terminal.Amount(c.Objects, "object"), terminal.Amount(c.Keys, "key"))
}

func newBackupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup NEW-DIRECTORY",
		Short: "Copy a history, also while a bridge writes to it",
		Long: `backup copies a history into a new directory, and reads the copy as check does. The copy has
what was durable when it began. The directory appears when it is complete: what was interrupted is
in NEW-DIRECTORY.partial, and is begun again.

Exit codes: 0; 1 when the copy can't be made; 2 when there is no history.`,
		Example: `  bridge history backup /backup/history-monday`,
		Args:    cobra.ExactArgs(1),
	}
	o := historyFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := o.directory()
		if err != nil {
			return err
		}
		return copyHistory(cmd, dir, args[0])
	}
	return cmd
}

func newRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Copy a backup to where a bridge has its history",
		Long: `restore copies a backup to the directory of the history, which must not exist: stop the
bridge, and move what is there away. A bridge does not send again what its sink has stored since the
backup: read that from a stream with 'bridge archive'.

Exit codes: 0; 1 when the copy can't be made; 2 when there is no backup.`,
		Example: `  bridge history restore /backup/history-monday --dir /var/lib/bridge/state/history`,
		Args:    cobra.ExactArgs(1),
	}
	o := historyFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := o.directory()
		if err != nil {
			return err
		}
		return copyHistory(cmd, args[0], dir)
	}
	return cmd
}

func copyHistory(cmd *cobra.Command, from, to string) error {
	c, err := history.Copy(cmd.Context(), from, to)
	switch {
	case errors.Is(err, history.ErrNone), errors.Is(err, history.ErrForeign):
		return Refused(err)
	case err != nil:
		return Failed(err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", to, checked(c))
	return nil
}
