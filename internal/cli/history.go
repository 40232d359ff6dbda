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
)

// historyCommands returns the commands of this package.
func historyCommands() []*cobra.Command {
	return []*cobra.Command{
		newArchiveCommand(), newHistoryCommand(), newShowCommand(), newDiffCommand(),
		newTimelineCommand(), newStateCommand(), newCoverageCommand(), newServeCommand(),
		newMCPCommand(),
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

// historyFlags adds them.
func historyFlags(cmd *cobra.Command, outputs ...string) *historyOptions {
	o := &historyOptions{settings: NewSettings(cmd, "state.dir")}
	cmd.Flags().StringVar(&o.dir, "dir", "",
		"directory of the history; none: that of the bridge with this "+
			"configuration, in its state directory")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "cluster, where the history has several")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace")
	_ = cmd.MarkFlagDirname("dir")
	if len(outputs) > 0 {
		OutputFlag(cmd, &o.output, outputs...)
	}
	_ = cmd.RegisterFlagCompletionFunc("cluster",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			db, err := o.open()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			defer db.Close()
			return db.Questions.Resources.Clusters(), cobra.ShellCompDirectiveNoFileComp
		})
	return o
}

// directory returns the directory of the history.
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
func (o *historyOptions) openQuestion() (*history.DB, *ask.Question, error) {
	db, err := o.open()
	if err != nil {
		return nil, nil, err
	}
	return db, o.question(db.Questions), nil
}

func (o *historyOptions) question(h *query.Questions) *ask.Question {
	q := &ask.Question{
		History: h, Cluster: o.cluster, Namespace: o.namespace, ClusterOption: "--cluster",
	}
	if o.all {
		q.Namespace = "*"
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
	db, q, err := o.openQuestion()
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
		return args[0], args[1], nil
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

// warnEnd reports that the history of units of one cluster ends before a time.
func warnEnd(cmd *cobra.Command, q *ask.Question, units []*record.Unit, until time.Time) error {
	end, err := q.EndsBefore(units, until)
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

// printHoles reports what may be missing, and when nobody watched: once for all resources of which
// the same is to be said.
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
