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
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// historyCommands are the commands of this package.
func historyCommands() []*cobra.Command {
	return []*cobra.Command{
		newArchiveCommand(), newHistoryCommand(), newShowCommand(), newDiffCommand(),
		newTimelineCommand(), newStateCommand(), newServeCommand(),
	}
}

// historyOptions are the flags of every question to a history.
type historyOptions struct {
	settings  *Settings
	dir       string
	namespace string
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

// directory is that of the history.
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

// oneCluster is the cluster that a question is about.
func (o *historyOptions) oneCluster(resources query.Resources) (string, error) {
	clusters := resources.Clusters()
	switch {
	case o.cluster != "":
		return o.cluster, nil
	case len(clusters) == 1:
		return clusters[0], nil
	case len(clusters) == 0:
		return "", nil
	}
	return "", Refused(fmt.Errorf("the history has several clusters, give one with --cluster: %s",
		strings.Join(clusters, ", ")))
}

// splitObject takes "deploy/web", or "deploy" and "web".
func splitObject(args []string) (kind, name string, err error) {
	if len(args) == 2 {
		return args[0], args[1], nil
	}
	kind, name, found := strings.Cut(args[0], "/")
	if !found || kind == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: want KIND/NAME, as deploy/web, or KIND NAME", args[0])
	}
	return kind, name, nil
}

// openObject opens the history and finds the object that the arguments name. Close the history.
func (o *historyOptions) openObject(
	cmd *cobra.Command, args []string,
) (*history.DB, *query.Object, error) {
	db, err := o.open()
	if err != nil {
		return nil, nil, err
	}
	object, err := o.find(cmd, db.Questions, args)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, object, nil
}

// find finds an object: in the namespace, or in none. Where several informers have it, it is the
// one with the newest version.
func (o *historyOptions) find(
	cmd *cobra.Command, h *query.Questions, args []string,
) (*query.Object, error) {
	kind, name, err := splitObject(args)
	if err != nil {
		return nil, err
	}
	units, err := h.Resources.Resolve(kind, o.cluster)
	if err != nil {
		return nil, Failed(err)
	}
	best, others, err := h.Objects.Find(units, o.namespace, name)
	switch {
	case errors.Is(err, query.ErrSeveralClusters):
		return nil, Refused(fmt.Errorf("%w; give one with --cluster", err))
	case err != nil:
		return nil, Failed(err)
	case best == nil:
		return nil, Failed(o.neverSeen(h.Objects, units, name))
	}
	for _, other := range others {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"bridge: informer %s has the object too; this is of informer %s\n",
			terminal.Plain(other.Informer), terminal.Plain(best.Unit.Informer))
	}
	return best, nil
}

// neverSeen says that no event ever named an object, and what was probably meant.
func (o *historyOptions) neverSeen(
	objects query.Objects, units []*record.Unit, name string,
) error {
	var near suggest.Objects
	meant := resource.MakeKey(o.namespace, name)
	const most = 100_000 // objects that are compared
	seen := 0
	for _, u := range units {
		for object, err := range objects.All(u, "") {
			if seen++; err != nil || seen > most {
				break
			}
			key := resource.MakeKey(object.Namespace, object.Name)
			target := meant
			if object.Namespace == "" {
				target = resource.Key(name)
			}
			near.Add(string(target), string(key))
		}
	}
	hint := ""
	if names := near.Nearest(); len(names) > 0 {
		hint = "; did you mean " + strings.Join(names, ", ") + "?"
	}
	return fmt.Errorf("the history has never seen %s %s in namespace %s%s", units[0].Resource, name,
		o.namespace, hint)
}

// timeHelp says what --at, --since and --until take.
const timeHelp = `Times are 14:03 or 14:03:05 (the last one that was, in the local time zone), 2h
ago, "2026-11-22 14:03", RFC 3339 (2026-11-22T14:03:00Z), or a resourceVersion. Answers show the
time with its zone. The API server's times are whole seconds.`

// warn reports because of what an answer may be incomplete, and where the history ends before a
// time.
func (o *historyOptions) warn(
	cmd *cobra.Command, h *query.Questions, object *query.Object, holes []*query.Notice,
	until time.Time,
) error {
	printHoles(cmd, holes)
	return warnEnd(cmd, h, []*record.Unit{object.Unit}, until)
}

// warnEnd reports that the history of units of a cluster ends before a time, unless the stream says
// that it is complete up to it; a zero time is none.
func warnEnd(
	cmd *cobra.Command, h *query.Questions, units []*record.Unit, until time.Time,
) error {
	if len(units) == 0 {
		return nil
	}
	newest, err := h.Timeline.Newest(units[0].Cluster())
	complete, completeErr := h.Coverage.CompleteUntil(units)
	if err = errors.Join(err, completeErr); complete.After(newest) {
		newest = complete
	}
	if err == nil && !until.IsZero() && until.After(newest.Add(time.Second)) {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"bridge: the newest event in this history is of %s: later changes may be missing\n",
			query.ShowTime(newest))
	}
	return Failed(err)
}

// warnRemoved reports that older versions of an object were removed: where the first one that is
// there is not how it came.
func warnRemoved(
	cmd *cobra.Command, h *query.Questions, object *query.Object, since time.Time,
) error {
	for first, err := range h.Objects.Versions(object, time.Time{}, time.Time{}) {
		if err != nil {
			return Failed(err)
		}
		if first.Event.Op != event.Added {
			return warnHorizon(cmd, h.Coverage, since)
		}
		break
	}
	return nil
}

// warnHorizon reports that older versions were removed.
func warnHorizon(cmd *cobra.Command, coverage query.Coverage, since time.Time) error {
	horizon, err := coverage.Horizon()
	if err == nil && since.Before(horizon) {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"bridge: this history is kept from %s on (retention): older versions were removed, but for "+
				"the last one before\n", query.ShowTime(horizon))
	}
	return Failed(err)
}

func printHoles(cmd *cobra.Command, holes []*query.Notice) {
	const most = 5
	for i, m := range holes {
		if i == most {
			fmt.Fprintf(cmd.ErrOrStderr(), "bridge: and %d more\n", len(holes)-most)
			break
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s\n", terminal.Plain(m.Warning()))
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
	units, _ := db.Questions.Resources.Resolve(kind, o.cluster)
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
