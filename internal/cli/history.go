package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/resource"
)

// historyOptions are the flags of every question to a history.
type historyOptions struct {
	settings  *settings
	dir       string
	namespace string
	cluster   string
	output    string
}

// historyFlags adds them.
func historyFlags(cmd *cobra.Command, outputs ...string) *historyOptions {
	o := &historyOptions{settings: newSettings(cmd, "state.dir")}
	cmd.Flags().StringVar(&o.dir, "dir", "", "directory of the history; none: that of the bridge with this "+
		"configuration, in its state directory")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "cluster, where the history has several")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace")
	_ = cmd.MarkFlagDirname("dir")
	outputFlag(cmd, &o.output, outputs...)
	_ = cmd.RegisterFlagCompletionFunc("cluster", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		db, err := o.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer db.Close()
		return db.Clusters(), cobra.ShellCompDirectiveNoFileComp
	})
	return o
}

// open opens the history. Its writer need not stop.
func (o *historyOptions) open() (*history.DB, error) {
	dir := o.dir
	if dir == "" {
		c, err := o.settings.load()
		if err != nil {
			return nil, err
		}
		dir = app.HistoryDir(c)
	}
	db, err := history.Read(history.Options{Dir: dir})
	if errors.Is(err, history.ErrNone) && o.dir == "" {
		err = fmt.Errorf("%w; give the directory of one with --dir, or make one of a stream with 'bridge archive'", err)
	}
	return db, refused(err)
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
func (o *historyOptions) openObject(cmd *cobra.Command, args []string) (*history.DB, *history.Object, error) {
	db, err := o.open()
	if err != nil {
		return nil, nil, err
	}
	object, err := o.find(cmd, db, args)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, object, nil
}

// find finds an object: in the namespace, or in none. Where several informers have it, it is the one
// with the newest version.
func (o *historyOptions) find(cmd *cobra.Command, db *history.DB, args []string) (*history.Object, error) {
	kind, name, err := splitObject(args)
	if err != nil {
		return nil, err
	}
	units, err := db.Resolve(kind, o.cluster)
	if err != nil {
		return nil, failed(err)
	}
	type candidate struct {
		*history.Object
		newest time.Time
	}
	var found []candidate
	var clusters []string
	for _, u := range units {
		for _, namespace := range slices.Compact([]string{o.namespace, ""}) {
			object := &history.Object{Unit: u, Namespace: namespace, Name: name}
			last, err := db.Last(object)
			if err != nil {
				return nil, failed(err)
			}
			if last != nil {
				found = append(found, candidate{object, last.Time})
				clusters = append(clusters, u.Cluster())
				break
			}
		}
	}
	slices.Sort(clusters)
	clusters = slices.Compact(clusters)
	switch {
	case len(found) == 0:
		return nil, failed(o.neverSeen(db, units, name))
	case len(clusters) > 1:
		return nil, refused(fmt.Errorf("%s/%s is in several clusters, give one with --cluster: %s", kind, name, strings.Join(clusters, ", ")))
	}
	best := slices.MaxFunc(found, func(a, b candidate) int { return a.newest.Compare(b.newest) })
	for _, other := range found {
		if other.Object != best.Object {
			fmt.Fprintf(cmd.ErrOrStderr(), "bridge: informer %s has the object too; this is of informer %s\n",
				plain(other.Unit.Informer), plain(best.Unit.Informer))
		}
	}
	return best.Object, nil
}

// neverSeen says that no event ever named an object, and what was probably meant.
func (o *historyOptions) neverSeen(db *history.DB, units []*history.Unit, name string) error {
	var best []near
	meant := resource.MakeKey(o.namespace, name)
	const most = 100_000 // objects that are compared
	seen := 0
	for _, u := range units {
		for object, err := range db.Objects(u, "") {
			if seen++; err != nil || seen > most {
				break
			}
			key := resource.MakeKey(object.Namespace, object.Name)
			target := meant
			if object.Namespace == "" {
				target = resource.Key(name)
			}
			best = nearest(best, target, key)
		}
	}
	var names []string
	for _, n := range best {
		names = append(names, n.key)
	}
	hint := ""
	if len(names) > 0 {
		hint = "; did you mean " + strings.Join(names, ", ") + "?"
	}
	return fmt.Errorf("the history has never seen %s %s in namespace %s%s", units[0].Resource, name, o.namespace, hint)
}

// point is a place in the history of a cluster: a time, or a resourceVersion.
type point struct {
	at      time.Time
	version uint64
}

func (p point) isZero() bool { return p == point{} }

// String is the point with its time zone.
func (p point) String() string {
	if p.version > 0 {
		return "resourceVersion " + strconv.FormatUint(p.version, 10)
	}
	return shownTime(p.at)
}

// shownTime has the zone, so that nobody mistakes one.
func shownTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }

// timeHelp says what --at, --since and --until take.
const timeHelp = `Times are 14:03 or 14:03:05 (the last one that was, in the local time zone), 2h ago, "2026-11-22 14:03",
RFC 3339 (2026-11-22T14:03:00Z), or a resourceVersion. Answers show the time with its zone. The API
server's times are whole seconds.`

// parsePoint reads one. A time of day is the last one that was.
func parsePoint(text string, now time.Time) (p point, err error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		return point{version: n}, nil
	}
	if text == "now" {
		return point{at: now}, nil
	}
	if ago, ok := parseAgo(text); ok {
		return point{at: now.Add(-ago)}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			p.at = at
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if clock, err := time.Parse(layout, text); err == nil {
			p.at = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
			if p.at.After(now) {
				p.at = p.at.AddDate(0, 0, -1)
			}
		}
	}
	switch {
	case p.at.IsZero():
		return p, fmt.Errorf("%q is no time: want 14:03, 2h ago, 2026-11-22 14:03, RFC 3339, or a resourceVersion", text)
	case p.at.After(now):
		return p, fmt.Errorf("%s is in the future: now is %s", shownTime(p.at), shownTime(now))
	}
	return p, nil
}

// parseAgo reads "2h ago", "90m", "3d".
func parseAgo(text string) (time.Duration, bool) {
	text = strings.ReplaceAll(strings.TrimSpace(strings.TrimSuffix(text, "ago")), " ", "")
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(24*time.Hour)), err == nil && n > 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// at is the version of an object at a point. Where the object was not there, the error says why.
func (o *historyOptions) at(db *history.DB, object *history.Object, p point) (v *history.Version, err error) {
	horizon, err := db.Horizon()
	if err != nil {
		return nil, failed(err)
	}
	if !p.at.IsZero() && p.at.Before(horizon) {
		return nil, failed(fmt.Errorf("what %s was at %s is not known: this history is kept from %s on (retention)", object, p, shownTime(horizon)))
	}
	if p.version > 0 {
		v, err = db.AtVersion(object, p.version)
	} else {
		v, err = db.At(object, p.at)
	}
	switch {
	case err != nil:
		return nil, failed(err)
	case v == nil:
		return nil, failed(o.notYet(db, object, p))
	case v.Deleted():
		return nil, failed(fmt.Errorf("%s did not exist at %s: it was deleted at %s (resourceVersion %s)", object, p,
			shownTime(v.Time), v.Event.ResourceVersion))
	}
	return v, nil
}

// notYet tells an object that did not exist from one that was not known.
func (o *historyOptions) notYet(db *history.DB, object *history.Object, p point) error {
	for first, err := range db.Versions(object, time.Time{}, time.Time{}) {
		if err != nil {
			return err
		}
		e := &first.Event
		if e.Op == "added" && !e.Initial && !e.Inferred && e.Cause != "entered-selector" {
			return fmt.Errorf("%s did not exist at %s: it was created at %s (resourceVersion %s)", object, p, shownTime(first.Time), e.ResourceVersion)
		}
		return fmt.Errorf("what %s was at %s is not known: the history of it begins at %s (resourceVersion %s)", object, p, shownTime(first.Time), e.ResourceVersion)
	}
	return fmt.Errorf("%s is not known", object)
}

// warn reports because of what an answer may be incomplete, and where the history ends before a time.
func (o *historyOptions) warn(
	cmd *cobra.Command, db *history.DB, object *history.Object, holes []*history.Mark, until time.Time,
) error {
	printHoles(cmd, holes)
	newest, err := db.Newest(object.Unit.Cluster())
	if err == nil && !until.IsZero() && until.After(newest.Add(time.Second)) {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: the newest event in this history is of %s: later changes may be missing\n", shownTime(newest))
	}
	return failed(err)
}

// warnHorizon reports that older versions were removed.
func warnHorizon(cmd *cobra.Command, db *history.DB, since time.Time) error {
	horizon, err := db.Horizon()
	if err == nil && since.Before(horizon) {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: this history is kept from %s on (retention): older versions were removed, but for the last one before\n", shownTime(horizon))
	}
	return failed(err)
}

func printHoles(cmd *cobra.Command, holes []*history.Mark) {
	const most = 5
	for i, m := range holes {
		if i == most {
			fmt.Fprintf(cmd.ErrOrStderr(), "bridge: and %d more\n", len(holes)-most)
			break
		}
		until := ""
		if !m.Until.IsZero() {
			until = " to " + shownTime(m.Until)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: this answer may be incomplete: %s, %s%s\n", plain(m.What()), shownTime(m.Time), until)
	}
}

// completeObjects lets shells complete the resources that a history has.
func (o *historyOptions) completeObjects(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
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
		for _, u := range db.Units() {
			if u.Resource != "" {
				list = append(list, u.Resource+"/")
			}
		}
		slices.Sort(list)
		return slices.Compact(list), none | cobra.ShellCompDirectiveNoSpace
	}
	units, _ := db.Resolve(kind, o.cluster)
	for _, u := range units {
		for object, err := range db.Objects(u, o.namespace) {
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
	return isTerminal(cmd.OutOrStdout()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// who made a change, as far as it is known.
func who(v *history.Version) string {
	who := cmp.Or(v.Event.Manager, "-")
	if v.Event.ManagerSubresource != "" {
		who += "/" + v.Event.ManagerSubresource
	}
	return who
}
