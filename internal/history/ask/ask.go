package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Set is the histories of this process that are open. It answers the admin server.
type Set struct {
	mu   sync.Mutex
	open []*openHistory // guarded by mu
}

type openHistory struct {
	history *query.Questions
	// ending is closed when the history is about to close.
	ending chan struct{}
	asking sync.WaitGroup
	// slots bound the questions at a time, so that they take no more than a share of the processor.
	slots chan struct{}
	// recent is what questions share.
	recent *ownerCache
	from   Place
}

// Place is where a history is from.
type Place struct {
	// Cluster is that of the bridge that writes it, "" where that is not known.
	Cluster string
	// Dir is where it is.
	Dir string
}

// maxQuestions is how many are answered at a time: on half of the processors. With as many as
// there are processors, or more, all sinks publish later by tens of milliseconds
// (TestPublishBesideQuestions).
var maxQuestions = max(runtime.GOMAXPROCS(0)/2, 1)

// Serve lets others ask a history, until end is called, which waits for those that do. A question
// that names none of several clusters is about that of the place.
func (h *Set) Serve(questions *query.Questions, from Place) (end func()) {
	if h == nil {
		return func() {}
	}
	o := &openHistory{
		history: questions, ending: make(chan struct{}),
		slots: make(chan struct{}, maxQuestions), recent: new(ownerCache),
		from: from,
	}
	h.mu.Lock()
	h.open = append(h.open, o)
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		h.open = slices.DeleteFunc(h.open, func(other *openHistory) bool { return other == o })
		h.mu.Unlock()
		close(o.ending)
		o.asking.Wait()
	}
}

// ask returns a history to ask, the first of several; nil where none is open. The context ends when
// that history is about to close. Call release afterwards.
func (h *Set) ask(ctx context.Context) (o *openHistory, _ context.Context, release func()) {
	h.mu.Lock()
	if len(h.open) == 0 {
		h.mu.Unlock()
		return nil, ctx, func() {}
	}
	o = h.open[0]
	o.asking.Add(1) // with the lock held: end can't have passed it by
	h.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-o.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	return o, ctx, func() { cancel(); o.asking.Done() }
}

// isEnding reports whether the history is about to close.
func (o *openHistory) isEnding() bool {
	select {
	case <-o.ending:
		return true
	default:
		return false
	}
}

// Ask implements admin.Historian.
func (h *Set) Ask(ctx context.Context, question string, parameters url.Values) (any, error) {
	questions := map[string]func(*request, context.Context) (any, error){
		"versions": (*request).versions, "object": (*request).object, "diff": (*request).diff,
		"timeline": (*request).timeline, "lanes": (*request).lanes, "losses": (*request).losses, "search": (*request).search,
		"resources": (*request).resources,
		"coverage":  (*request).coverage,
		"compare":   (*request).compare,
		"state":     nil,
	}
	answer, known := questions[question]
	if !known {
		return nil, notFound(fmt.Errorf("no question %q: there are versions, object, diff, timeline, "+
			"lanes, losses, state, search, resources, coverage and compare", question))
	}
	if question == "state" { // it outlives this call
		return h.state(ctx, parameters)
	}
	o, ctx, release := h.ask(ctx)
	defer release()
	if o == nil {
		if question == "resources" {
			return resourcesReport{Resources: []string{}, Clusters: []string{}, Namespaces: []string{}}, nil
		}
		return nil, noHistory()
	}
	if err := o.slot(ctx); err != nil {
		return nil, err
	}
	defer o.free()
	result, err := answer(newRequest(o, parameters), ctx)
	if err == nil {
		err = ctx.Err()
	}
	return result, classifyAnswer(err)
}

func noHistory() error {
	return notFound(errors.New("this bridge keeps no history, or it is not open yet: add a " +
		"sink of kind history"))
}

// slot waits for one.
func (o *openHistory) slot(ctx context.Context) error {
	select {
	case o.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &Error{
			Code: http.StatusServiceUnavailable,
			Err:  errors.New("too many questions at a time, or the history closes"),
		}
	}
}

func (o *openHistory) free() { <-o.slots }

// classifyAnswer says how an error is answered.
func classifyAnswer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return &Error{
			Code: http.StatusServiceUnavailable,
			Err:  errors.New("the question was broken off"),
		}
	case errors.Is(err, query.ErrUnknownResource), errors.Is(err, query.ErrDidNotExist),
		errors.Is(err, query.ErrNotKnown):
		return notFound(err)
	}
	return err
}

// request is a question of the admin server: Namespace and Cluster of the Question are its
// parameters.
type request struct {
	Question
	parameters url.Values
	recent     *ownerCache
	actors     *Actors
	initiators *Initiators
	dir        string // of the history
}

func newRequest(o *openHistory, parameters url.Values) *request {
	q := Question{
		History: o.history, Cluster: parameters.Get("cluster"), Namespace: parameters.Get("namespace"),
		ClusterOption: "cluster=",
	}
	q.ChooseCluster(o.from.Cluster)
	actors := NewActors(o.history)
	return &request{q, parameters, o.recent, actors, NewInitiators(actors), o.from.Dir}
}

// point reads a parameter that is a time or a resourceVersion; the zero point where it is left out.
func (q *request) point(name string) (query.Point, error) {
	p, err := ParsePoint(name, q.parameters.Get(name))
	if err != nil {
		err = badQuestion(err)
	}
	return p, err
}

// ofSeveral returns the question about several objects: in all namespaces where none is given.
func (q *request) ofSeveral() *Question {
	several := q.Question
	several.Namespace = cmp.Or(q.Namespace, "*")
	return &several
}

// kinds returns the resources that are asked for, none for all.
func (q *request) kinds() (names []string) {
	for _, list := range q.parameters["kind"] {
		names = append(names, strings.Split(list, ",")...)
	}
	return names
}

// limit returns a parameter that bounds an answer.
func (q *request) limit(fallback, most int) (int, error) {
	return q.count("limit", fallback, most)
}

// count returns a parameter that is a number from 1.
func (q *request) count(name string, fallback, most int) (int, error) {
	text := q.parameters.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badQuestion(fmt.Errorf("%s %q: want 1 to %d", name, text, most))
	}
	return n, nil
}

// findObject finds the object of the request: object=deploy/web&namespace=shop.
func (q *request) findObject() (*query.Object, error) {
	kind, name, ok := SplitObject(q.parameters.Get("object"))
	if !ok {
		return nil, badQuestion(errors.New("want object=KIND/NAME, as object=deploy/web&namespace=shop"))
	}
	o, _, err := q.Find(kind, name, query.Point{})
	return o, err
}

type objectReport struct {
	Cluster   string `json:"cluster"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func reportObject(o *query.Object) objectReport {
	return objectReport{o.Unit.Cluster(), o.Unit.GroupResource(), o.Namespace, o.Name}
}

// maxHoles bounds those of an answer, the newest.
const maxHoles = 100

func reportHoles(holes []*query.Notice) []query.HoleReport {
	list := []query.HoleReport{}
	for _, m := range holes[max(len(holes)-maxHoles, 0):] {
		list = append(list, m.Report())
	}
	return list
}

// uncertainty says how far an answer can be relied on.
type uncertainty struct {
	// Horizon is the time from which on everything is kept.
	Horizon time.Time `json:"horizon,omitzero"`
	// Ends is the time at which the history ends, where that is before the time that was asked for:
	// later changes may be missing.
	Ends time.Time `json:"ends,omitzero"`
	// Incomplete is what may be missing.
	Incomplete []query.HoleReport `json:"incomplete"`
}

// uncertainty is of units up to a point, of which the zero one is now.
func (q *request) uncertainty(
	units []*record.Unit, until query.Point, holes []*query.Notice,
) (u uncertainty, err error) {
	var endErr error
	u.Horizon, err = q.History.Coverage.Horizon()
	u.Ends, endErr = q.EndsBefore(units, until)
	u.Ends, u.Incomplete = u.Ends.UTC(), reportHoles(holes)
	return u, cmp.Or(err, endErr)
}

// resourcesReport says of what there is a history.
type resourcesReport struct {
	Kept     bool     `json:"kept"`
	Clusters []string `json:"clusters"`
	// Cluster is the one that questions which name none are about.
	Cluster   string   `json:"cluster,omitempty"`
	Resources []string `json:"resources"`
	// Namespaces are those that objects were ever in.
	Namespaces []string  `json:"namespaces"`
	Horizon    time.Time `json:"horizon,omitzero"`
	// Dir is where the history is, for commands that ask it.
	Dir string `json:"dir,omitempty"`
}

func (q *request) resources(_ context.Context) (any, error) {
	r := resourcesReport{
		Kept: true, Clusters: q.History.Resources.Clusters(), Cluster: q.Cluster, Resources: []string{},
		Dir: q.dir,
	}
	units := q.History.Resources.Units()
	units = slices.DeleteFunc(slices.Clone(units), func(u *record.Unit) bool {
		return q.Cluster != "" && u.Cluster() != q.Cluster
	})
	for _, u := range units {
		if u.Resource != "" && u.Source != record.ArchiveSource {
			r.Resources = append(r.Resources, u.GroupResource())
		}
	}
	slices.Sort(r.Resources)
	r.Resources = slices.Compact(r.Resources)
	names, err := q.History.Objects.Namespaces(units)
	if err != nil {
		return nil, err
	}
	r.Namespaces = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	r.Horizon, err = q.History.Coverage.Horizon()
	return r, err
}

// coverageReport says what was watched.
type coverageReport struct {
	Cluster   string           `json:"cluster,omitempty"`
	Intervals []query.Interval `json:"intervals"`
}

func (q *request) coverage(_ context.Context) (any, error) {
	since, err := q.point("since")
	if err != nil {
		return nil, err
	}
	if since.Version > 0 {
		return nil, badQuestion(errors.New("since of a coverage is a time"))
	}
	list, err := q.ofSeveral().Coverage(q.kinds(), since.At)
	if list == nil {
		list = []query.Interval{}
	}
	return coverageReport{q.Cluster, list}, err
}

// searchReport are the objects that were found.
type searchReport struct {
	Objects []objectReport `json:"objects"`
	// More says that there are others.
	More bool `json:"more"`
}

const (
	defaultFound = 50
	mostFound    = 1000
	// mostCompared are found at most before they are put in order.
	mostCompared = 20_000
)

// search finds objects whose name has a text in it, or those of one kind: deploy/web.
func (q *request) search(ctx context.Context) (any, error) {
	limit, err := q.limit(defaultFound, mostFound)
	cluster, clusterErr := q.OneCluster()
	if err := cmp.Or(err, clusterErr); err != nil {
		return nil, err
	}
	kind, part, qualified := strings.Cut(q.parameters.Get("q"), "/")
	var kinds []string
	if qualified {
		kinds = []string{kind}
	} else {
		part = kind
	}
	units, err := q.selectUnits(cluster, kinds, query.Point{})
	if err != nil {
		return nil, err
	}
	r := searchReport{Objects: []objectReport{}}
	seen := map[objectReport]bool{} // of several informers
	for _, u := range units {
		for o, err := range q.History.Objects.All(u, q.parameters.Get("namespace")) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return nil, err
			}
			found := reportObject(&o)
			if !strings.Contains(o.Name, part) || seen[found] {
				continue
			}
			if len(r.Objects) == mostCompared {
				r.More = true
				break
			}
			seen[found] = true
			r.Objects = append(r.Objects, found)
		}
	}
	slices.SortStableFunc(r.Objects, func(a, b objectReport) int {
		return cmp.Or(rankFound(&a, part)-rankFound(&b, part), cmp.Compare(len(a.Name), len(b.Name)))
	})
	if len(r.Objects) > limit {
		r.Objects, r.More = r.Objects[:limit], true
	}
	return r, nil
}

// rankFound orders what was found: those with the very name first, then workloads, and what follows
// other objects last.
func rankFound(o *objectReport, name string) (rank int) {
	if o.Name != name {
		rank = 10
	}
	switch {
	case slices.Contains(workloads, o.Resource):
		return rank
	case slices.Contains(derivedResources, o.Resource):
		return rank + 2
	}
	return rank + 1
}

var workloads = []string{
	"deployments.apps", "statefulsets.apps", "daemonsets.apps", "cronjobs.batch", "jobs.batch",
}
