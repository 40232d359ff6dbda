package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// lanesReport is what happened in a namespace, object by object: what objects own is folded under
// them. Its size does not follow the number of changes.
type lanesReport struct {
	Cluster string `json:"cluster,omitempty"`
	uncertainty
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Begins is when the first of the resources began to be watched.
	Begins time.Time `json:"begins,omitzero"`
	Lanes  []*lane   `json:"lanes"`
	// More is how many lanes, those with the fewest changes, are not in the answer.
	More int `json:"more,omitempty"`
	// Changes are those of the lanes, Hidden the others by class. Heartbeats are in neither.
	Changes int            `json:"changes"`
	Hidden  map[string]int `json:"hidden"`
	// Managers counts the changes by who made them, whatever manager is asked for.
	Managers map[string]int `json:"managers"`
	// Histogram counts all of them by part of the time.
	Histogram []int `json:"histogram"`
}

// lane is an object, and what it owns.
type lane struct {
	objectReport
	Changes int `json:"changes"`
	// Existed reports whether the object was there before its first change in the answer.
	Existed bool `json:"existed,omitempty"`
	// Points are the changes of the object, the oldest first; nil where Buckets count them.
	Points []lanePoint `json:"points,omitempty"`
	// Buckets count by part of the time: those of the object where there are too many points.
	Buckets []laneBucket `json:"buckets,omitempty"`
	// Children are how many objects it owns, by resource; ChildBuckets count their changes.
	Children     map[string]int `json:"children,omitempty"`
	ChildBuckets []laneBucket   `json:"childBuckets,omitempty"`
	Failures     int            `json:"failures,omitempty"`

	own   []laneBucket
	owned int // how many objects
}

// lanePoint is [milliseconds, mark, version]. A mark is + added, ~ updated, - deleted or ! failing;
// A, U and D are what became known late, so that the time is the latest possible.
type lanePoint [3]any

// laneBucket is [part of the time, changes, failures].
type laneBucket [3]int

const (
	defaultBuckets = 300
	mostBuckets    = 1000
	mostLanes      = 200
	// mostLanesKept bounds the memory of an answer: an object takes about half a kilobyte.
	mostLanesKept = 20_000
)

func (q *request) lanes(ctx context.Context) (any, error) {
	since, err := q.point("since")
	until, untilErr := q.point("until")
	count, countErr := q.count("buckets", defaultBuckets, mostBuckets)
	if err := cmp.Or(err, untilErr, countErr); err != nil {
		return nil, err
	}
	if since.Version > 0 || until.Version > 0 {
		return nil, badQuestion(errors.New("since and until of lanes are times"))
	}
	now := time.Now()
	if since.At.IsZero() {
		since.At = now.Add(-time.Hour)
	}
	if until.At.IsZero() {
		until.At = now
	}
	if !since.At.Before(until.At) {
		return nil, badQuestion(errors.New("since is not before until"))
	}
	wanted, err := q.newFilter()
	if err != nil {
		return nil, err
	}
	happened, err := q.ofSeveral().Timeline(q.kinds(), since, until)
	if err != nil {
		return nil, err
	}
	s := newLaneSorter(q.History, q.recent, since.At, until.At, count)
	s.wanted = wanted
	s.owners.all = happened.Objects
	for e, err := range happened.Entries {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		if err := s.add(e); err != nil {
			return nil, err
		}
	}
	r := s.report()
	r.Cluster = q.Cluster
	if r.uncertainty, err = q.uncertainty(happened.Units, until, happened.Holes); err != nil {
		return nil, err
	}
	r.Begins, err = q.begins()
	return r, err
}

// begins returns when the first of the resources that are asked for began to be watched.
func (q *request) begins() (begins time.Time, err error) {
	intervals, err := q.ofSeveral().Coverage(q.kinds(), time.Time{})
	for _, i := range intervals {
		if i.Gap == "" && (begins.IsZero() || i.Since.Before(begins)) {
			begins = i.Since
		}
	}
	return begins, err
}

// laneSorter puts changes into lanes.
type laneSorter struct {
	lanesReport
	wanted  filter
	owners  *owners
	objects map[query.Object]*laneObject
	lanes   map[query.Object]*lane
}

// laneObject is where the changes of an object go. It is found once: a change costs a look-up.
type laneObject struct {
	root    query.Object
	isOwned bool
	lane    *lane // of the root; nil before the first change that is not hidden
	// isBeyond: there are too many lanes. isCounted: it is among the children of its lane.
	isBeyond, isCounted bool
}

func newLaneSorter(
	history *query.Questions, recent *ownerCache, since, until time.Time, buckets int,
) *laneSorter {
	return &laneSorter{
		lanesReport: lanesReport{
			Since: since, Until: until, Histogram: make([]int, buckets),
			Hidden: map[string]int{}, Managers: map[string]int{},
		},
		owners:  newOwners(history, recent),
		objects: map[query.Object]*laneObject{}, lanes: map[query.Object]*lane{},
	}
}

func (s *laneSorter) add(e *query.Entry) error {
	if e.IsHeartbeat() || !s.wanted.selectsButManager(e) {
		return nil
	}
	if s.Managers[managerOf(e)]++; !s.wanted.selectsManager(e) {
		return nil
	}
	class, isFailure := noiseOf(e)
	bucket := s.bucket(e.Time)
	s.Histogram[bucket]++
	if class == ClassDerived {
		s.Hidden[class]++
		return nil
	}
	o := objectOf(e)
	of, err := s.objectOf(o, e)
	if err != nil {
		return err
	}
	if class == ClassStatus && !of.isOwned {
		s.Hidden[class]++
		return nil
	}
	l := s.laneOf(of)
	if l == nil {
		return nil
	}
	if isFailure {
		l.Failures++
	}
	if o != of.root {
		if isFailure {
			s.Changes++
		} else {
			s.Hidden[classChild]++
		}
		if !of.isCounted {
			of.isCounted = true
			l.owned++
			l.Children[o.Unit.GroupResource()]++
		}
		l.ChildBuckets = addToBucket(l.ChildBuckets, bucket, isFailure)
		return nil
	}
	if l.Changes == 0 {
		l.Existed = e.Event.Op != event.Added
	}
	s.Changes++
	l.Changes++
	l.own = addToBucket(l.own, bucket, isFailure)
	if len(l.Points) <= len(s.Histogram) { // one more: then buckets are sent
		l.Points = append(l.Points, lanePoint{
			e.Time.UnixMilli(), markOf(e, isFailure), e.Event.ResourceVersion,
		})
	}
	return nil
}

// objectOf finds where the changes of an object go. One that is created again may have another
// owner.
func (s *laneSorter) objectOf(o query.Object, e *query.Entry) (*laneObject, error) {
	of := s.objects[o]
	isAdded := e.Event.Op == event.Added
	if of != nil && !isAdded {
		return of, nil
	}
	if isAdded {
		s.owners.recent.forget(o, e.Time)
	}
	by, err := s.owners.find(o)
	if err != nil {
		return nil, err
	}
	root, err := s.owners.root(o)
	if err != nil {
		return nil, err
	}
	if of == nil || of.root != root {
		of = &laneObject{root: root, isOwned: by.name != ""}
		s.objects[o] = of
	}
	return of, nil
}

func (s *laneSorter) bucket(at time.Time) int {
	n := len(s.Histogram)
	part := float64(at.Sub(s.Since)) / float64(s.Until.Sub(s.Since)) * float64(n)
	return min(max(int(part), 0), n-1)
}

// laneOf returns the lane at the end of a chain of owners; nil for one too many.
func (s *laneSorter) laneOf(of *laneObject) *lane {
	if of.lane != nil || of.isBeyond {
		return of.lane
	}
	l := s.lanes[of.root]
	switch {
	case l == nil && len(s.lanes) == mostLanesKept:
		of.isBeyond = true
		s.More++
		return nil
	case l == nil:
		l = &lane{objectReport: reportObject(&of.root), Existed: true, Children: map[string]int{}}
		s.lanes[of.root] = l
	}
	of.lane = l
	return l
}

// addToBucket counts a change in a list that is sorted. Changes come in the order of seconds, so
// the place is at the end, or just before it.
func addToBucket(list []laneBucket, i int, isFailure bool) []laneBucket {
	at := len(list)
	for at > 0 && list[at-1][0] > i {
		at--
	}
	if at == 0 || list[at-1][0] < i {
		list = slices.Insert(list, at, laneBucket{i})
		at++
	}
	b := &list[at-1]
	if b[1]++; isFailure {
		b[2]++
	}
	return list
}

func markOf(e *query.Entry, isFailure bool) string {
	late := !e.Event.NotBefore.IsZero()
	switch op := e.Event.Op; {
	case isFailure:
		return "!"
	case op == event.Added && late:
		return "A"
	case op == event.Added:
		return "+"
	case op == event.Deleted && late:
		return "D"
	case op == event.Deleted:
		return "-"
	case late:
		return "U"
	}
	return "~"
}

// report returns the lanes, those with the most changes of their own first.
func (s *laneSorter) report() *lanesReport {
	r := &s.lanesReport
	r.Lanes = slices.AppendSeq(make([]*lane, 0, len(s.lanes)), maps.Values(s.lanes))
	slices.SortFunc(r.Lanes, func(a, b *lane) int {
		return cmp.Or(
			b.Changes-a.Changes, b.owned-a.owned,
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	if len(r.Lanes) > mostLanes {
		r.More += len(r.Lanes) - mostLanes
		r.Lanes = r.Lanes[:mostLanes]
	}
	for _, l := range r.Lanes {
		if len(l.Points) > len(r.Histogram) {
			l.Points, l.Buckets = nil, l.own
		}
	}
	return r
}

// owners finds the controllers of objects, as the last versions of these name them.
type owners struct {
	history *query.Questions
	recent  *ownerCache
	units   map[string]*record.Unit // by kind and group; nil for one without a history
	// all returns all objects that will be asked for; nil where that is not known.
	all func() ([]query.Object, error)
	// lookups were single ones.
	lookups int
}

// mostLookups are single ones, before all objects are looked up at once.
const mostLookups = 50

// ownerCache has what owners found within the last minute: to look up 10,000 objects takes tenths
// of a second, and the page asks again with each click. An object that is created again under the
// name of another is looked up again at its first change. What it owns follows within the minute.
type ownerCache struct {
	mu    sync.Mutex
	began time.Time              // guarded by mu
	found map[query.Object]owner // guarded by mu
}

const (
	recentTime = time.Minute
	// recentMost bounds the memory: an entry takes about 200 bytes.
	recentMost = 100_000
)

func (r *ownerCache) get(o query.Object) (owner, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.began) > recentTime || len(r.found) > recentMost {
		r.began, r.found = time.Now(), map[query.Object]owner{}
	}
	found, isKnown := r.found[o]
	return found, isKnown
}

func (r *ownerCache) put(o query.Object, by owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[o] = by
}

// forget removes an object that was created at a time, where it may have been looked up before.
func (r *ownerCache) forget(o query.Object, created time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if created.After(r.began.Add(-recentTime)) {
		delete(r.found, o)
	}
}

// owner is the controller of an object; the zero owner is none.
type owner struct {
	kind, group, name, uid string
}

// String returns "replicaset/web-1", or "" for none.
func (o owner) String() string {
	if o.name == "" {
		return ""
	}
	return o.kind + "/" + o.name
}

func newOwners(history *query.Questions, recent *ownerCache) *owners {
	return &owners{history: history, recent: recent, units: map[string]*record.Unit{}}
}

// find returns the controller of an object: none also where the history has no metadata of it.
func (f *owners) find(o query.Object) (owner, error) {
	found, isKnown := f.recent.get(o)
	if isKnown {
		return found, nil
	}
	if f.lookups++; f.lookups > mostLookups && f.all != nil {
		if err := f.findAll(); err != nil {
			return found, err
		}
		if found, isKnown = f.recent.get(o); isKnown {
			return found, nil
		}
	}
	v, err := f.history.Objects.At(&o, query.Point{})
	if err != nil {
		return found, err
	}
	found = controllerOf(v)
	f.recent.put(o, found)
	return found, nil
}

// findAll looks up all objects that will be asked for, once.
func (f *owners) findAll() error {
	objects, err := f.all()
	if f.all = nil; err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o query.Object) bool {
		_, isKnown := f.recent.get(o)
		return isKnown
	})
	for v, err := range f.history.Objects.Latest(objects) {
		if err != nil {
			return err
		}
		o := query.Object{Unit: v.Unit, Namespace: v.Event.Namespace, Name: v.Event.Name}
		f.recent.put(o, controllerOf(v))
	}
	return nil
}

// controllerOf returns the controller that a version names; nil names none.
func controllerOf(v *query.Version) (found owner) {
	var references []struct {
		APIVersion, Kind, Name, UID string
		Controller                  bool
	}
	if v != nil {
		// What can't be decoded has no owner: it is shown.
		_ = json.Unmarshal(diff.Field(v.Event.Data, "metadata.ownerReferences"), &references)
	}
	for _, r := range references {
		if group, _, isGrouped := strings.Cut(r.APIVersion, "/"); r.Controller {
			if !isGrouped {
				group = ""
			}
			found = owner{strings.ToLower(r.Kind), group, r.Name, r.UID}
		}
	}
	return found
}

// maxOwners bounds a chain of owners: a cluster may have a cycle.
const maxOwners = 8

// root returns the object at the end of the chain of owners of which the history has a resource:
// the object itself where it has no owner.
func (f *owners) root(o query.Object) (query.Object, error) {
	for range maxOwners {
		by, err := f.find(o)
		if err != nil || by.name == "" {
			return o, err
		}
		unit, err := f.unitOf(o.Unit, by)
		if err != nil || unit == nil {
			return o, err
		}
		o = query.Object{Unit: unit, Namespace: o.Namespace, Name: by.name}
	}
	return o, nil
}

// unitOf returns the unit of an owner, of the informer of the object where that reads the owner.
func (f *owners) unitOf(of *record.Unit, by owner) (*record.Unit, error) {
	key := of.Informer + " " + by.kind + " " + by.group
	found, isKnown := f.units[key]
	if isKnown {
		return found, nil
	}
	name := by.kind
	if by.group != "" {
		name += "." + by.group
	}
	units, err := f.history.Resources.Resolve(name, of.Cluster(), query.Point{})
	if err != nil && !errors.Is(err, query.ErrUnknownResource) &&
		!errors.Is(err, query.ErrSeveralResources) {
		return nil, err
	}
	for _, u := range units {
		if found == nil || u.Informer == of.Informer {
			found = u
		}
	}
	f.units[key] = found
	return found, nil
}
