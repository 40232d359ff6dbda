package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

type timelineReport struct {
	Cluster string `json:"cluster,omitempty"`
	uncertainty
	Changes []timelineChange `json:"changes"`
	// More says that the answer was cut: ask again with before=Next for the newest first, else with
	// since, or narrow it.
	More bool   `json:"more"`
	Next string `json:"next,omitempty"`
	// Heartbeats were left out; Hidden were left out by class, as hide= asked for; of Unattributed
	// the user is not known, where actor= asks for some.
	Heartbeats   int            `json:"heartbeats"`
	Unattributed int            `json:"unattributed,omitempty"`
	Hidden       map[string]int `json:"hidden,omitempty"`
}

// timelineChange is one change.
type timelineChange struct {
	query.TimelineReport
	// Class is why the change may be hidden; "" for one that is always shown.
	Class string `json:"class,omitempty"`
	// Owner is the controller of the object, as kind/name, where hide= asks for children.
	Owner string `json:"owner,omitempty"`
	// Failure: the change says that a container fails.
	Failure bool `json:"failure,omitempty"`
}

const (
	defaultChanges = 500
	mostChanges    = 10_000
)

// Classes of changes that hide= leaves out and counts.
const (
	// ClassStatus: only the status differs.
	ClassStatus = "status"
	// ClassDerived is of Events, Endpoints and Leases, which follow what else happens.
	ClassDerived = "derived"
	// classChild is of an object that a controller owns.
	classChild = "child"
)

func (q *request) timeline(ctx context.Context) (any, error) {
	since, err := q.point("since")
	until, untilErr := q.point("until")
	limit, limitErr := q.limit(defaultChanges, mostChanges)
	if err := cmp.Or(err, untilErr, limitErr); err != nil {
		return nil, err
	}
	if since.Version > 0 || until.Version > 0 {
		return nil, badQuestion(errors.New("since and until of a timeline are times"))
	}
	if since.At.IsZero() {
		since.At = time.Now().Add(-time.Hour)
	}
	c, err := q.newClassifier()
	if err != nil {
		return nil, err
	}
	wanted, err := q.newFilter()
	if err != nil {
		return nil, err
	}
	happened, err := q.inOrder(since, until)
	if err != nil {
		return nil, err
	}
	r := timelineReport{Cluster: q.Cluster, Hidden: map[string]int{}}
	if r.uncertainty, err = q.uncertainty(happened.Units, until, happened.Holes); err != nil {
		return nil, err
	}
	r.Changes = make([]timelineChange, 0, min(limit, defaultChanges))
	bytes := 0
	for e, err := range happened.Entries {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		if !wanted.selects(e) {
			continue
		}
		if e.IsHeartbeat() && q.parameters.Get("heartbeats") != "true" {
			r.Heartbeats++
			continue
		}
		change, err := c.classify(e)
		if err != nil {
			return nil, err
		}
		if slices.Contains(c.hide, change.Class) {
			r.Hidden[change.Class]++
			continue
		}
		switch selected, err := q.actors.Selects(e.Version, wanted.actors, wanted.notActors); {
		case err != nil:
			return nil, err
		case selected == UserUnknown:
			r.Unattributed++
			continue
		case selected == UserOther:
			continue
		}
		if len(r.Changes) == limit || bytes > mostBytes {
			r.More = true
			return r, nil
		}
		if change.TimelineReport, err = q.reportEntry(e); err != nil {
			return nil, err
		}
		if r.Changes = append(r.Changes, change); q.isNewestFirst() {
			r.Next = e.Cursor.String()
		}
		bytes += change.Size()
	}
	r.Next = ""
	return r, nil
}

func (q *request) isNewestFirst() bool { return q.parameters.Get("order") == "newest" }

// inOrder finds what happened, in the order that is asked for.
func (q *request) inOrder(since, until query.Point) (t Timeline, err error) {
	before, err := query.ParseCursor(q.parameters.Get("before"))
	switch order := q.parameters.Get("order"); {
	case err != nil:
		return t, badQuestion(fmt.Errorf("before: %w", err))
	case order != "" && order != "newest" && order != "oldest":
		return t, badQuestion(fmt.Errorf("order %q: want newest or oldest", order))
	case q.isNewestFirst():
		return q.ofSeveral().NewestFirst(q.kinds(), since, until, before)
	case before != nil:
		return t, badQuestion(errors.New("before needs order=newest"))
	}
	return q.ofSeveral().Timeline(q.kinds(), since, until)
}

// reportEntry returns an entry as JSON, with all values where values=true asks for them.
func (q *request) reportEntry(e *query.Entry) (query.TimelineReport, error) {
	report := e.Report()
	if err := q.actors.AddTo(&report.VersionReport, e.Version); err != nil {
		return report, err
	}
	if q.parameters.Get("values") != "true" || !e.IsCut() {
		return report, nil
	}
	all, err := q.History.Timeline.Whole(e)
	report.Changed, report.More = query.ReportChanges(all), 0
	return report, err
}

// filter selects changes of a timeline by the parameters q, manager and op.
type filter struct {
	// text is a part of the object's name, or of a field's; of is the kind that may precede it.
	text    string
	of      []*record.Unit
	manager string
	ops     []string
	// actors and notActors are patterns of users.
	actors, notActors []string
}

// noManager is the value of the parameter manager for changes of which the manager is not known.
const noManager = "not recorded"

func (q *request) newFilter() (f filter, err error) {
	f.text = strings.ToLower(q.parameters.Get("q"))
	if kind, name, ok := SplitObject(f.text); ok {
		// what is no kind is a namespace: shop/web
		if of, err := q.History.Resources.Resolve(kind, q.Cluster, query.Point{}); err == nil {
			f.text, f.of = name, of
		}
	}
	f.manager = q.parameters.Get("manager")
	for name, patterns := range map[string]*[]string{"actor": &f.actors, "notActor": &f.notActors} {
		if text := q.parameters.Get(name); text != "" {
			*patterns = strings.Split(text, ",")
		}
	}
	if err := q.checkActors(&f); err != nil {
		return f, err
	}
	if ops := q.parameters.Get("op"); ops != "" {
		f.ops = strings.Split(ops, ",")
	}
	all := []string{string(event.Added), string(event.Updated), string(event.Deleted)}
	for _, op := range f.ops {
		if !slices.Contains(all, op) {
			return f, badQuestion(fmt.Errorf("op %q: want %s", op, strings.Join(all, ", ")))
		}
	}
	return f, nil
}

// checkActors refuses to look for users where none can be known.
func (q *request) checkActors(f *filter) error {
	if len(f.actors)+len(f.notActors) == 0 {
		return nil
	}
	cluster, err := q.OneCluster()
	if err != nil {
		return err
	}
	isRecorded, err := q.actors.IsRecorded(cluster)
	if err == nil && !isRecorded {
		err = badQuestion(ErrNoAudit)
	}
	return err
}

// selects reports whether a change is asked for.
func (f *filter) selects(e *query.Entry) bool {
	return f.selectsButManager(e) && f.selectsManager(e)
}

func (f *filter) selectsManager(e *query.Entry) bool {
	return f.manager == "" || managerOf(e) == f.manager
}

func (f *filter) selectsButManager(e *query.Entry) bool {
	if len(f.ops) > 0 && !slices.Contains(f.ops, string(e.Event.Op)) {
		return false
	}
	if f.of != nil && !slices.Contains(f.of, e.Unit) {
		return false
	}
	if f.text == "" || strings.Contains(strings.ToLower(e.Event.Namespace+"/"+e.Event.Name), f.text) {
		return true
	}
	if f.of != nil {
		return false
	}
	if strings.Contains(e.Unit.GroupResource(), f.text) {
		return true
	}
	for _, c := range e.Changes {
		if strings.Contains(strings.ToLower(c.Path), f.text) {
			return true
		}
	}
	return false
}

func managerOf(e *query.Entry) string {
	if e.Event.Manager == "" {
		return noManager
	}
	return e.Event.Manager
}

// classifier finds out what may be hidden of a timeline.
type classifier struct {
	hide   []string
	owners *owners // nil where children are not asked for
}

func (q *request) newClassifier() (*classifier, error) {
	c := &classifier{}
	if text := q.parameters.Get("hide"); text != "" {
		c.hide = strings.Split(text, ",")
	}
	for _, class := range c.hide {
		if !slices.Contains([]string{ClassStatus, ClassDerived, classChild}, class) {
			return nil, badQuestion(fmt.Errorf("hide %q: want %s, %s or %s", class, ClassStatus,
				ClassDerived, classChild))
		}
	}
	if slices.Contains(c.hide, classChild) {
		c.owners = newOwners(q.History, q.recent)
	}
	return c, nil
}

// derivedResources follow what happens to other objects.
var derivedResources = []string{
	"events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io",
	"leases.coordination.k8s.io",
}

// classify returns the class of an entry. What shows a failure has none.
func (c *classifier) classify(e *query.Entry) (change timelineChange, err error) {
	if c.owners != nil {
		o := objectOf(e)
		if e.Event.Op == event.Added {
			c.owners.recent.forget(o, e.Time)
		}
		owner, err := c.owners.find(o)
		if err != nil {
			return change, err
		}
		change.Owner = owner.String()
	}
	change.Class, change.Failure = noiseOf(e)
	if change.Owner != "" && change.Class != ClassDerived && !change.Failure {
		change.Class = classChild
	}
	return change, nil
}

// NoiseOf returns ClassStatus or ClassDerived where a list for people may leave a change out, else
// "". What shows a failure is never left out.
func NoiseOf(e *query.Entry) string {
	class, _ := noiseOf(e)
	return class
}

func noiseOf(e *query.Entry) (class string, isFailure bool) {
	switch {
	case slices.ContainsFunc(e.Changes, showsFailure):
		return "", true
	case slices.Contains(derivedResources, e.Unit.GroupResource()):
		return ClassDerived, false
	case isStatusOnly(e):
		return ClassStatus, false
	}
	return "", false
}

func objectOf(e *query.Entry) query.Object {
	return query.Object{Unit: e.Unit, Namespace: e.Event.Namespace, Name: e.Event.Name}
}

// isStatusOnly reports whether an update changed nothing but the status, and what controllers note
// beside it: the revision of a Deployment is an annotation.
func isStatusOnly(e *query.Entry) bool {
	isOfStatus := e.Event.ManagerSubresource == "status"
	return e.Event.Op == event.Updated && len(e.Changes) > 0 && e.More == 0 &&
		!slices.ContainsFunc(e.Changes, func(c diff.Change) bool {
			return c.Path != "status" && !strings.HasPrefix(c.Path, "status.") && !c.IsHeartbeat() &&
				!(isOfStatus && strings.HasPrefix(c.Path, "metadata.annotations"))
		})
}

// showsFailure reports whether a change of a status says that a container fails: it waits for
// another reason than its start, or it has ended with an exit code. A summary lacks long values: a
// state without its value counts.
func showsFailure(c diff.Change) bool {
	if !strings.HasPrefix(c.Path, "status.") || len(c.New) == 0 && !c.Omitted {
		return false
	}
	value := string(c.New)
	switch {
	case strings.HasSuffix(c.Path, ".state.waiting.reason"):
		return c.Omitted || value != `"ContainerCreating"` && value != `"PodInitializing"`
	case strings.HasSuffix(c.Path, ".state.terminated.exitCode"):
		return value != "0"
	}
	return c.Omitted && strings.HasSuffix(c.Path, ".state.waiting")
}

// OwnedObjects are an object, and all that it owned at some time: also what has gone, and what
// another object owned that it owned.
type OwnedObjects struct {
	root  objectReport
	spans map[objectReport][]keys.IndexSpan
}

// OwnedObjects finds what an object owned from one time to another: every object that had its name
// meanwhile. A zero until is now.
func (q *Question) OwnedObjects(o *query.Object, since, until time.Time) (*OwnedObjects, error) {
	all, err := q.selectUnits(o.Unit.Cluster(), nil, query.Point{})
	if err != nil {
		return nil, err
	}
	owners, err := q.uids(o, since, until)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, uid := range owners {
		seen[uid] = true
	}
	b := &OwnedObjects{root: reportObject(o), spans: map[objectReport][]keys.IndexSpan{}}
	for i := 0; i < len(owners); i++ {
		for p, err := range q.History.Objects.ValueSpans(all, query.ByOwner(owners[i]), since, until) {
			if err != nil {
				return nil, err
			}
			found := reportObject(&p.Object)
			b.spans[found] = append(b.spans[found], p.Span)
			if !seen[p.UID] {
				seen[p.UID], owners = true, append(owners, p.UID)
			}
		}
	}
	return b, nil
}

// uids returns those of the objects that had a name from one time to another.
func (q *Question) uids(o *query.Object, since, until time.Time) (uids []string, err error) {
	add := func(v *query.Version) {
		if !slices.Contains(uids, v.Event.UID) {
			uids = append(uids, v.Event.UID)
		}
	}
	if !since.IsZero() {
		v, err := q.History.Objects.At(o, query.Point{At: since})
		if err != nil {
			return nil, err
		}
		if v != nil && !v.Deleted() {
			add(v)
		}
	}
	for v, err := range q.History.Objects.Versions(o, since, until) {
		if err != nil {
			return nil, err
		}
		add(v)
	}
	return uids, nil
}

// Has reports whether an entry of a timeline is of the object, or of what it owned then.
func (b *OwnedObjects) Has(e *query.Entry) bool {
	o := objectOf(e)
	of := reportObject(&o)
	return of == b.root || slices.ContainsFunc(b.spans[of], func(s keys.IndexSpan) bool {
		return s.Has(keys.Seconds(e.Time))
	})
}
