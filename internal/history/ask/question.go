package ask

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// Question finds what a question to a history is about. The admin server fills it from the
// parameters of a request, the command line from its flags.
type Question struct {
	History *query.Questions
	// Cluster is a name, or "" for the only cluster of the history.
	Cluster string
	// Namespace of the objects; "*" for all, where a question is about several objects.
	Namespace string
	// ClusterOption is how to give a cluster, in errors: "--cluster".
	ClusterOption string
}

// Error is an error of a question with the HTTP status that it is answered with.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus returns the status for app/admin, which knows this method only.
func (e *Error) HTTPStatus() int { return e.Code }

func badQuestion(err error) error { return &Error{Code: http.StatusBadRequest, Err: err} }

func notFound(err error) error { return &Error{Code: http.StatusNotFound, Err: err} }

// IsBad reports whether an error is because of how the question was asked: asking it otherwise
// helps.
func IsBad(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == http.StatusBadRequest
}

// ParsePoint reads the point of an option: a time or a resourceVersion. "" is the zero point.
func ParsePoint(option, text string) (p query.Point, err error) {
	if text == "" {
		return p, nil
	}
	if p, err = query.ParsePoint(text, time.Now()); err != nil {
		return p, fmt.Errorf("%s: %w", option, err)
	}
	return p, nil
}

// ChooseCluster makes a question that names no cluster one about the only cluster of the history,
// or of several about own, where that is one of them. It returns the others of several then.
func (q *Question) ChooseCluster(own string) (others []string) {
	clusters := q.History.Resources.Clusters()
	switch {
	case q.Cluster != "":
	case len(clusters) == 1:
		q.Cluster = clusters[0]
	case slices.Contains(clusters, own):
		q.Cluster = own
		return slices.DeleteFunc(clusters, func(name string) bool { return name == own })
	}
	return nil
}

// OneCluster returns the cluster that the question is about, "" where the history is empty.
func (q *Question) OneCluster() (string, error) {
	clusters := q.History.Resources.Clusters()
	switch {
	case q.Cluster != "" && !slices.Contains(clusters, q.Cluster):
		return "", badQuestion(fmt.Errorf("the history has no cluster %q: it has %s", q.Cluster,
			strings.Join(clusters, ", ")))
	case q.Cluster != "":
		return q.Cluster, nil
	case len(clusters) == 1:
		return clusters[0], nil
	case len(clusters) == 0:
		return "", nil
	}
	return "", badQuestion(fmt.Errorf("the history has several clusters, give one with %s: %s",
		q.ClusterOption, strings.Join(clusters, ", ")))
}

// SplitObject splits "deploy/web" into a kind and a name.
func SplitObject(text string) (kind, name string, ok bool) {
	kind, name, found := strings.Cut(text, "/")
	return kind, name, found && kind != "" && name != "" && !strings.Contains(name, "/")
}

// Find finds an object in the namespace, or in none, by the names that its resource had at a point.
// A name may have escapes, as answers print what no terminal shows: "a\\x00b". Where several
// informers have the object, it is that of the informer with the newest version. notes say what the
// asker may not expect: other informers, another kind of the resource.
func (q *Question) Find(
	kind, name string, at query.Point,
) (o *query.Object, notes []string, err error) {
	units, err := q.History.Resources.Resolve(kind, q.Cluster, at)
	if errors.Is(err, query.ErrSeveralResources) {
		err = badQuestion(err)
	}
	if err != nil {
		return nil, nil, err
	}
	o, others, err := q.History.Objects.Find(units, q.Namespace, name)
	if err == nil && o == nil {
		if unescaped, isEscaped := unescape(name); isEscaped {
			o, others, err = q.History.Objects.Find(units, q.Namespace, unescaped)
		}
	}
	switch {
	case errors.Is(err, query.ErrSeveralClusters):
		return nil, nil, badQuestion(fmt.Errorf("%w; give one with %s", err, q.ClusterOption))
	case err != nil:
		return nil, nil, err
	case o == nil:
		return nil, nil, q.neverSeen(units, name)
	}
	for _, other := range others {
		notes = append(notes, fmt.Sprintf("informer %s has %s too; this is of informer %s",
			other.Informer, o, o.Unit.Informer))
	}
	if word, _, _ := strings.Cut(strings.ToLower(kind), "."); word != o.Unit.Resource {
		note, err := q.kindNote(o, word)
		if err != nil {
			return nil, nil, err
		}
		notes = append(notes, note...)
	}
	return o, notes, nil
}

func unescape(name string) (unescaped string, isEscaped bool) {
	if !strings.Contains(name, `\`) {
		return "", false
	}
	unescaped, err := strconv.Unquote(`"` + strings.ReplaceAll(name, `"`, `\"`) + `"`)
	return unescaped, err == nil
}

// kindNote says since when an object is of another kind than the one that was asked for: its
// definition was deleted, and came again with another kind.
func (q *Question) kindNote(o *query.Object, asked string) (note []string, err error) {
	kinds := q.History.Resources.Kinds(o.Unit)
	if len(kinds) == 1 || !slices.ContainsFunc(kinds, func(kind string) bool { return strings.ToLower(kind) == asked }) {
		return nil, nil
	}
	kind := ""
	for v, err := range q.History.Objects.Versions(o, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		if v.Event.Kind != kind {
			kind = v.Event.Kind
			note = []string{fmt.Sprintf("%s is of kind %s since resourceVersion %s, %s", o, kind,
				v.Event.ResourceVersion, query.ShowTime(v.Time))}
		}
	}
	if strings.ToLower(kind) == asked {
		note = nil
	}
	return note, nil
}

// CheckPoint returns an error for a resourceVersion that the history of a cluster has not reached:
// a number may be a mistake, or a Unix time.
func (q *Question) CheckPoint(cluster string, p query.Point) error {
	if p.Version == 0 {
		return nil
	}
	reached, err := q.History.Coverage.Reached(cluster, p.Version)
	if err != nil || reached == 0 || p.Version <= reached {
		return err
	}
	hint := ""
	for _, at := range []time.Time{time.Unix(int64(p.Version), 0), time.UnixMilli(int64(p.Version))} {
		if at.Year() > 2000 && at.Before(time.Now().AddDate(1, 0, 0)) {
			hint = "; for the time write " + at.UTC().Format(time.RFC3339)
		}
	}
	return badQuestion(fmt.Errorf("resourceVersion %d is not known: the history of cluster %s reaches to %d%s",
		p.Version, cluster, reached, hint))
}

// neverSeen returns the error for an object that no event named, with names that are close to it.
func (q *Question) neverSeen(units []*record.Unit, name string) error {
	const most = 100_000 // objects that are compared
	var near suggest.Objects
	meant, seen := resource.MakeKey(q.Namespace, name), 0
	for _, u := range units {
		for o, err := range q.History.Objects.All(u, "") {
			if seen++; err != nil || seen > most {
				break
			}
			target := meant
			if o.Namespace == "" {
				target = resource.Key(name)
			}
			near.Add(string(target), string(resource.MakeKey(o.Namespace, o.Name)))
		}
	}
	where, hint := "in no namespace", ""
	if q.Namespace != "" {
		where = "in namespace " + q.Namespace
	}
	if clusters := q.History.Resources.Clusters(); len(clusters) > 1 && q.Cluster != "" {
		where += fmt.Sprintf(" of cluster %s (%s: one of %s)", q.Cluster, q.ClusterOption,
			strings.Join(clusters, ", "))
	}
	if names := near.Nearest(); len(names) > 0 {
		hint = "; did you mean " + strings.Join(names, ", ") + "?"
	}
	return notFound(fmt.Errorf("the history has never seen %s %s %s%s", units[0].Resource, name, where,
		hint))
}

// Existing returns the version of an object that existed at a point, with its LateChange, the holes
// because of which it may have been another one, and when there was no watch. For the zero point it
// returns the last version, also of an object that is gone.
func (q *Question) Existing(
	o *query.Object, p query.Point,
) (v *query.Version, holes []*query.Notice, err error) {
	if p.IsZero() {
		v, err = q.History.Objects.At(o, p)
		return v, nil, err
	}
	if err := q.CheckPoint(o.Unit.Cluster(), p); err != nil {
		return nil, nil, err
	}
	if v, err = q.History.Objects.Existing(o, p); err != nil {
		return nil, nil, err
	}
	holes, err = q.History.Coverage.Uncertain(o, v, p)
	if err != nil {
		return nil, nil, err
	}
	unwatched, err := q.History.Coverage.Unwatched([]*record.Unit{o.Unit}, o.Namespace, p)
	if err != nil {
		return nil, nil, err
	}
	v.LateChange, err = q.History.Objects.LateChange(o, p)
	return v, append(holes, unwatched...), err
}

// Previous returns the version before one. It is an error that there is none.
func (q *Question) Previous(o *query.Object, v *query.Version) (*query.Version, error) {
	before, err := q.History.Objects.VersionBefore(v)
	if err == nil && before == nil {
		err = notFound(fmt.Errorf("%s has no version before resourceVersion %s", o,
			v.Event.ResourceVersion))
	}
	return before, err
}

// CheckComparable returns why two versions can't be compared, nil where they can.
func CheckComparable(a, b *query.Version) error {
	if a.Form() == b.Form() {
		return nil
	}
	return notFound(fmt.Errorf("the two versions can't be compared: of one the history has the %s, "+
		"of the other the %s", a.Form(), b.Form()))
}

// Removed returns the time from which on the history is kept, where retention has removed versions
// of an object that a question since a time is about. The zero time: none are missing.
func (q *Question) Removed(o *query.Object, since time.Time) (horizon time.Time, err error) {
	for first, err := range q.History.Objects.Versions(o, time.Time{}, time.Time{}) {
		if err != nil || first.Event.Op == event.Added {
			return horizon, err
		}
		return q.KeptFrom(since)
	}
	return horizon, nil
}

// KeptFrom returns the time from which on the history is kept, where that is later than since; else
// the zero time.
func (q *Question) KeptFrom(since time.Time) (time.Time, error) {
	horizon, err := q.History.Coverage.Horizon()
	if !since.Before(horizon) {
		horizon = time.Time{}
	}
	return horizon, err
}

// quietTime is how old the end of a history may be that is written now: it hears each minute that
// it is complete.
const quietTime = 3 * time.Minute

// EndsBefore returns the time at which the history of units of one cluster ends, where that is
// before a point, of which the zero one is now; else the zero time. The end is the newest event, or
// what the stream says it is complete up to.
func (q *Question) EndsBefore(units []*record.Unit, p query.Point) (end time.Time, err error) {
	if len(units) == 0 || p.Version > 0 {
		return end, nil
	}
	until := p.At
	if written := time.Now().Add(-quietTime); until.IsZero() || until.After(written) {
		until = written
	}
	end, err = q.History.Timeline.Newest(units[0].Cluster())
	if err != nil || !until.After(end.Add(time.Second)) {
		return time.Time{}, err
	}
	complete, err := q.History.Coverage.CompleteUntil(units)
	if complete.After(end) {
		end = complete
	}
	if !until.After(end.Add(time.Second)) {
		end = time.Time{}
	}
	return end, err
}

// selectUnits returns the units of some resources, as they were named at a point.
func (q *Question) selectUnits(
	cluster string, kinds []string, at query.Point,
) ([]*record.Unit, error) {
	units, err := q.History.Resources.Select(cluster, kinds, at)
	if errors.Is(err, query.ErrSeveralResources) {
		err = badQuestion(err)
	}
	return units, err
}

// Timeline is what happened in a namespace from one time to another.
type Timeline struct {
	Entries iter.Seq2[*query.Entry, error]
	// Units are of the resources.
	Units []*record.Unit
	// Holes are what may be missing.
	Holes []*query.Notice
	// Objects returns those that something happened to.
	Objects func() ([]query.Object, error)
}

// Timeline finds what happened to some resources, named as kubectl names them; to all for none.
func (q *Question) Timeline(kinds []string, since, until query.Point) (t Timeline, err error) {
	return q.timeline(kinds, since, until, func(
		cluster string, wanted func(u *record.Unit) bool,
	) iter.Seq2[*query.Entry, error] {
		return q.History.Timeline.Entries(cluster, q.Namespace, since.At, until.At, wanted)
	})
}

// NewestFirst is Timeline with the newest first, of what is before a cursor; nil for all.
func (q *Question) NewestFirst(
	kinds []string, since, until query.Point, before *query.Cursor,
) (t Timeline, err error) {
	return q.timeline(kinds, since, until, func(
		cluster string, wanted func(u *record.Unit) bool,
	) iter.Seq2[*query.Entry, error] {
		return q.History.Timeline.NewestFirst(cluster, q.Namespace, since.At, until.At, before, wanted)
	})
}

func (q *Question) timeline(
	kinds []string, since, until query.Point,
	entries func(cluster string, wanted func(u *record.Unit) bool) iter.Seq2[*query.Entry, error],
) (t Timeline, err error) {
	cluster, err := q.OneCluster()
	if err != nil {
		return t, err
	}
	units, err := q.selectUnits(cluster, kinds, until)
	if err != nil {
		return t, err
	}
	isWanted := map[*record.Unit]bool{} // of several hundred
	for _, u := range units {
		isWanted[u] = true
	}
	wanted := func(u *record.Unit) bool { return isWanted[u] }
	t.Entries, t.Units = entries(cluster, wanted), units
	t.Objects = func() ([]query.Object, error) {
		return q.History.Timeline.Objects(cluster, q.Namespace, since.At, until.At, wanted)
	}
	t.Holes, err = q.History.Coverage.HolesOf(units, since.At, until.At)
	return t, err
}

// Owned returns the objects of a state that the object of a uid owned, as Objects.State does.
func (q *Question) Owned(s *State, uid string) iter.Seq2[*query.Version, error] {
	part := s.StateQuery
	part.By = query.ByOwner(uid)
	var err error
	if part.Units, err = q.History.Objects.UnitsWith(s.Units, part.By); err != nil {
		return func(yield func(*query.Version, error) bool) { yield(nil, err) }
	}
	return q.History.Objects.State(part)
}

// Coverage returns what was read of some resources, named as kubectl names them, without a break;
// of all for none. What had ended by since is left out.
func (q *Question) Coverage(kinds []string, since time.Time) ([]query.Interval, error) {
	cluster, err := q.OneCluster()
	if err != nil {
		return nil, err
	}
	units, err := q.selectUnits(cluster, kinds, query.Point{})
	if err != nil {
		return nil, err
	}
	return q.History.Coverage.Intervals(query.CoverageQuery{
		Units: units, Namespace: q.Namespace, Since: since,
	})
}

// State is all objects of a namespace at a point.
type State struct {
	query.StateQuery
	// Holes are what may be missing, Unlisted are units whose first list had not ended. Unwatched
	// are unwatched times around the point.
	Holes     []*query.Notice
	Unlisted  []query.UnlistedUnit
	Unwatched []*query.Notice
}

// State finds the objects of some resources, named as kubectl names them; of all for none. A point
// before the horizon is an error.
func (q *Question) State(kinds []string, p query.Point) (s State, err error) {
	cluster, err := q.OneCluster()
	if err != nil {
		return s, err
	}
	s.StateQuery = query.StateQuery{Namespace: q.Namespace, At: p}
	if err := q.CheckPoint(cluster, p); err != nil {
		return s, err
	}
	if s.Units, err = q.selectUnits(cluster, kinds, p); err != nil {
		return s, err
	}
	if err = q.History.Coverage.CheckState(s.StateQuery); err != nil {
		return s, err
	}
	if s.Holes, s.Unlisted, err = q.History.Coverage.UncertainState(s.StateQuery); err != nil {
		return s, err
	}
	if s.Unwatched, err = q.History.Coverage.Unwatched(s.Units, s.Namespace, p); err != nil {
		return s, err
	}
	s.LateUntil, err = q.History.Coverage.LateUntil(s.Units, p.At)
	return s, err
}
