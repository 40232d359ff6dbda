package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/admin"
	"github.com/kubebridge/bridge/internal/history"
)

// histories are those of this process that are open. They answer the admin server.
type histories struct {
	mu   sync.Mutex
	open []*openHistory // guarded by mu
}

// openHistory is one of them.
type openHistory struct {
	*history.DB
	// ending ends when the history is about to close.
	ending context.Context
	asking sync.WaitGroup
	// slots bound the questions at a time, so that they take no more than a share of the processor.
	slots chan struct{}
}

// maxQuestions is how many are answered at a time.
const maxQuestions = 4

// serve lets others ask a history, until end is called, which waits for those that do.
func (h *histories) serve(db *history.DB) (end func()) {
	if h == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &openHistory{DB: db, ending: ctx, slots: make(chan struct{}, maxQuestions)}
	h.mu.Lock()
	h.open = append(h.open, o)
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		h.open = slices.DeleteFunc(h.open, func(other *openHistory) bool { return other == o })
		h.mu.Unlock()
		cancel()
		o.asking.Wait()
	}
}

// ask returns a history to ask, the first of several; nil where none is open. Call release
// afterwards.
func (h *histories) ask(ctx context.Context) (o *openHistory, _ context.Context, release func()) {
	h.mu.Lock()
	if len(h.open) == 0 {
		h.mu.Unlock()
		return nil, ctx, func() {}
	}
	o = h.open[0]
	o.asking.Add(1) // with the lock held: end can't have passed it by
	h.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(o.ending, cancel)
	return o, ctx, func() { unhook(); cancel(); o.asking.Done() }
}

// badQuestion is an error of who asks.
func badQuestion(err error) error { return &admin.Error{Code: http.StatusBadRequest, Err: err} }

func notFound(err error) error { return &admin.Error{Code: http.StatusNotFound, Err: err} }

// Ask implements admin.Historian.
func (h *histories) Ask(ctx context.Context, question string, q url.Values) (any, error) {
	questions := map[string]func(*asked) (any, error){
		"versions": (*asked).versions, "object": (*asked).object, "diff": (*asked).diff,
		"timeline": (*asked).timeline, "search": (*asked).search, "resources": (*asked).resources,
		"state": nil,
	}
	answer, known := questions[question]
	if !known {
		return nil, notFound(fmt.Errorf("no question %q: there are versions, object, diff, timeline, state, search and resources", question))
	}
	if question == "state" { // it outlives this call
		return h.state(ctx, q)
	}
	db, ctx, release := h.ask(ctx)
	defer release()
	if db == nil {
		if question == "resources" {
			return resourcesReport{Resources: []string{}, Clusters: []string{}}, nil
		}
		return nil, noHistory()
	}
	if err := db.slot(ctx); err != nil {
		return nil, err
	}
	defer db.free()
	a := &asked{db: db.DB, ctx: ctx, q: q}
	result, err := answer(a)
	if err == nil {
		err = ctx.Err()
	}
	return result, classifyAnswer(err)
}

func noHistory() error {
	return notFound(errors.New("this bridge keeps no history, or it is not open yet: add a sink of kind history"))
}

// slot waits for one.
func (o *openHistory) slot(ctx context.Context) error {
	select {
	case o.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &admin.Error{Code: http.StatusServiceUnavailable, Err: errors.New("too many questions at a time, or the history closes")}
	}
}

func (o *openHistory) free() { <-o.slots }

// classifyAnswer says how an error is answered.
func classifyAnswer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return &admin.Error{Code: http.StatusServiceUnavailable, Err: errors.New("the question was broken off")}
	case errors.Is(err, history.ErrUnknownResource), errors.Is(err, history.ErrDidNotExist), errors.Is(err, history.ErrNotKnown):
		return notFound(err)
	case errors.Is(err, history.ErrSeveralClusters):
		return badQuestion(fmt.Errorf("%w; give one with cluster=", err))
	}
	return err
}

// asked is one question.
type asked struct {
	db  *history.DB
	ctx context.Context //nolint:containedctx // of one question
	q   url.Values
}

// point is a parameter that is a time or a resourceVersion; the zero point when it is left out.
func (a *asked) point(name string) (p history.Point, err error) {
	text := a.q.Get(name)
	if text == "" {
		return p, nil
	}
	if p, err = history.ParsePoint(text, time.Now()); err != nil {
		return p, badQuestion(fmt.Errorf("%s: %w", name, err))
	}
	return p, nil
}

// limit is a parameter that bounds an answer.
func (a *asked) limit(fallback, most int) (int, error) {
	text := a.q.Get("limit")
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badQuestion(fmt.Errorf("limit %q: want 1 to %d", text, most))
	}
	return n, nil
}

// cluster is the one that is meant.
func (a *asked) cluster() (string, error) {
	clusters := a.db.Clusters()
	name := a.q.Get("cluster")
	switch {
	case name != "":
		return name, nil
	case len(clusters) > 1:
		return "", badQuestion(fmt.Errorf("the history has several clusters, give one with cluster=: %s", strings.Join(clusters, ", ")))
	case len(clusters) == 0:
		return "", nil
	}
	return clusters[0], nil
}

// find is the object that is meant: object=deploy/web&namespace=shop.
func (a *asked) find() (*history.Object, error) {
	kind, name, found := strings.Cut(a.q.Get("object"), "/")
	if !found || kind == "" || name == "" || strings.Contains(name, "/") {
		return nil, badQuestion(errors.New("want object=KIND/NAME, as object=deploy/web&namespace=shop"))
	}
	units, err := a.db.Resolve(kind, a.q.Get("cluster"))
	if err != nil {
		return nil, err
	}
	object, _, err := a.db.Find(units, a.q.Get("namespace"), name)
	if err == nil && object == nil {
		err = notFound(fmt.Errorf("the history has never seen %s %s in namespace %q", units[0].Resource, name, a.q.Get("namespace")))
	}
	return object, err
}

// objectReport names an object.
type objectReport struct {
	Cluster   string `json:"cluster"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func reportObject(o *history.Object) objectReport {
	return objectReport{o.Unit.Cluster(), o.Unit.GroupResource(), o.Namespace, o.Name}
}

// holeReport is something that may be missing.
type holeReport struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// maxHoles bounds those of an answer, the newest.
const maxHoles = 100

func reportHoles(holes []*history.Mark) []holeReport {
	list := []holeReport{}
	for _, m := range holes[max(len(holes)-maxHoles, 0):] {
		list = append(list, holeReport{m.What(), m.Time, m.Until})
	}
	return list
}

// uncertainty says how far an answer can be relied on.
type uncertainty struct {
	// Horizon is the time from which on everything is kept.
	Horizon time.Time `json:"horizon,omitzero"`
	// Incomplete is what may be missing.
	Incomplete []holeReport `json:"incomplete"`
}

func (a *asked) uncertainty(holes []*history.Mark) (u uncertainty, err error) {
	u.Horizon, err = a.db.Horizon()
	u.Incomplete = reportHoles(holes)
	return u, err
}

// versionsReport answers versions.
type versionsReport struct {
	objectReport
	uncertainty
	// Versions are the newest ones, in their order; Earlier is how many came before in the time
	// asked for.
	Versions []history.VersionReport `json:"versions"`
	Earlier  int                     `json:"earlier,omitempty"`
}

// Bounds of answers that are one document.
const (
	defaultVersions = 500
	mostVersions    = 5000

	// mostBytes is of the objects of versions, or of the changes of a timeline: objects may be
	// large, and each of their versions too.
	mostBytes = 32 << 20
)

func (a *asked) versions() (any, error) {
	since, err := a.point("since")
	until, untilErr := a.point("until")
	limit, limitErr := a.limit(defaultVersions, mostVersions)
	if err := cmp.Or(err, untilErr, limitErr); err != nil {
		return nil, err
	}
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	holes, err := a.db.Holes(o, since.At, until.At)
	if err != nil {
		return nil, err
	}
	r := versionsReport{objectReport: reportObject(o), Versions: []history.VersionReport{}}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	last := newest{count: limit, bytes: mostBytes}
	for v, err := range a.db.Versions(o, since.At, until.At) {
		if err := cmp.Or(err, a.ctx.Err()); err != nil {
			return nil, err
		}
		last.add(v)
	}
	if last.before == nil && len(last.versions) > 0 {
		if last.before, err = a.db.VersionBefore(last.versions[0]); err != nil {
			return nil, err
		}
	}
	r.Earlier = last.earlier
	before := last.before
	for _, v := range last.versions {
		r.Versions = append(r.Versions, v.Report(before))
		before = v
	}
	return r, nil
}

// newest keeps the last versions that it is given: at most count of them, and at most bytes of
// objects, but always one.
type newest struct {
	count, bytes int
	versions     []*history.Version
	before       *history.Version // the one before them; nil for none
	earlier      int              // how many came before them
}

func (n *newest) add(v *history.Version) {
	n.versions = append(n.versions, v)
	n.bytes -= len(v.Event.Data)
	for len(n.versions) > 1 && (len(n.versions) > n.count || n.bytes < 0) {
		n.before = n.versions[0]
		n.versions = slices.Delete(n.versions, 0, 1)
		n.bytes += len(n.before.Event.Data)
		n.earlier++
	}
}

// stateOf is an object at a point.
type stateOf struct {
	objectReport
	uncertainty
	history.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

// existing is the version at a parameter's point, the last one when it is left out.
func (a *asked) existing(o *history.Object, name string) (v *history.Version, holes []*history.Mark, err error) {
	p, err := a.point(name)
	if err != nil {
		return nil, nil, err
	}
	if p.IsZero() {
		v, err = a.db.At(o, p)
	} else {
		v, err = a.db.Existing(o, p)
	}
	if err == nil && !p.IsZero() {
		holes, err = a.db.Uncertain(o, v, p)
	}
	return v, holes, err
}

func (a *asked) object() (any, error) {
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	v, holes, err := a.existing(o, "at")
	if err != nil {
		return nil, err
	}
	r := stateOf{objectReport: reportObject(o), VersionReport: v.Report(nil)}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	if json.Valid(v.Event.Data) {
		r.Object = v.Event.Data
	}
	return r, nil
}

// diffReport is what differs between two versions.
type diffReport struct {
	objectReport
	uncertainty
	From    history.VersionReport  `json:"from"`
	To      history.VersionReport  `json:"to"`
	Changed []history.ChangeReport `json:"changed"`
}

func (a *asked) diff() (any, error) {
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	to, holes, err := a.existing(o, "to")
	if err != nil {
		return nil, err
	}
	var from *history.Version
	if a.q.Get("from") == "" {
		if from, err = a.db.VersionBefore(to); err == nil && from == nil {
			err = notFound(fmt.Errorf("%s has no version before resourceVersion %s", o, to.Event.ResourceVersion))
		}
	} else {
		var more []*history.Mark
		from, more, err = a.existing(o, "from")
		holes = append(holes, more...)
	}
	if err != nil {
		return nil, err
	}
	if from.Form() != to.Form() {
		return nil, notFound(fmt.Errorf("the two versions can't be compared: of one the history has the %s, of the other the %s", from.Form(), to.Form()))
	}
	r := diffReport{objectReport: reportObject(o), From: from.Report(nil), To: to.Report(nil), Changed: []history.ChangeReport{}}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	for _, c := range history.Changes(from.Event.Data, to.Event.Data) {
		r.Changed = append(r.Changed, history.ChangeReport{Field: c.Path, Old: c.Old, New: c.New})
	}
	return r, nil
}

// timelineReport is what happened.
type timelineReport struct {
	uncertainty
	Changes []history.TimelineReport `json:"changes"`
	// More says that the answer was cut: ask again with since, or narrow it.
	More       bool `json:"more"`
	Heartbeats int  `json:"heartbeats"`
}

const (
	defaultChanges = 500
	mostChanges    = 10_000
)

func (a *asked) timeline() (any, error) {
	since, err := a.point("since")
	until, untilErr := a.point("until")
	limit, limitErr := a.limit(defaultChanges, mostChanges)
	cluster, clusterErr := a.cluster()
	if err := cmp.Or(err, untilErr, limitErr, clusterErr); err != nil {
		return nil, err
	}
	if since.Version > 0 || until.Version > 0 {
		return nil, badQuestion(errors.New("since and until of a timeline are times"))
	}
	if since.At.IsZero() {
		since.At = time.Now().Add(-time.Hour)
	}
	units, err := a.units(cluster)
	if err != nil {
		return nil, err
	}
	holes, err := a.db.HolesOf(units, since.At, until.At)
	if err != nil {
		return nil, err
	}
	r := timelineReport{Changes: []history.TimelineReport{}}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	wanted := func(u *history.Unit) bool { return slices.Contains(units, u) }
	bytes := 0
	for e, err := range a.db.Timeline(cluster, a.namespace(), since.At, until.At, wanted) {
		switch {
		case cmp.Or(err, a.ctx.Err()) != nil:
			return nil, cmp.Or(err, a.ctx.Err())
		case e.IsHeartbeat() && a.q.Get("heartbeats") != "true":
			r.Heartbeats++
		case len(r.Changes) == limit || bytes > mostBytes:
			r.More = true
			return r, nil
		default:
			report := e.Report()
			r.Changes = append(r.Changes, report)
			bytes += report.Size()
		}
	}
	return r, nil
}

// namespace is the parameter: all when it is left out.
func (a *asked) namespace() string { return cmp.Or(a.q.Get("namespace"), "*") }

// units are those of the resources that are asked for.
func (a *asked) units(cluster string) ([]*history.Unit, error) {
	var names []string
	for _, list := range a.q["kind"] {
		names = append(names, strings.Split(list, ",")...)
	}
	return a.db.Select(cluster, names)
}

// resourcesReport says of what there is a history.
type resourcesReport struct {
	Kept      bool      `json:"kept"`
	Clusters  []string  `json:"clusters"`
	Resources []string  `json:"resources"`
	Horizon   time.Time `json:"horizon,omitzero"`
}

func (a *asked) resources() (any, error) {
	r := resourcesReport{Kept: true, Clusters: a.db.Clusters(), Resources: []string{}}
	for _, u := range a.db.Units() {
		if u.Resource != "" && u.Source != history.ArchiveSource {
			r.Resources = append(r.Resources, u.GroupResource())
		}
	}
	slices.Sort(r.Resources)
	r.Resources = slices.Compact(r.Resources)
	var err error
	r.Horizon, err = a.db.Horizon()
	return r, err
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
)

// search finds objects whose name has a text in it, or those of one kind: deploy/web.
func (a *asked) search() (any, error) {
	limit, err := a.limit(defaultFound, mostFound)
	cluster, clusterErr := a.cluster()
	if err := cmp.Or(err, clusterErr); err != nil {
		return nil, err
	}
	kind, part, qualified := strings.Cut(a.q.Get("q"), "/")
	var kinds []string
	if qualified {
		kinds = []string{kind}
	} else {
		part = kind
	}
	units, err := a.db.Select(cluster, kinds)
	if err != nil {
		return nil, err
	}
	r := searchReport{Objects: []objectReport{}}
	seen := map[objectReport]bool{} // of several informers
	for _, u := range units {
		for o, err := range a.db.Objects(u, a.q.Get("namespace")) {
			if err := cmp.Or(err, a.ctx.Err()); err != nil {
				return nil, err
			}
			found := reportObject(&o)
			if !strings.Contains(o.Name, part) || seen[found] {
				continue
			}
			if len(r.Objects) == limit {
				r.More = true
				return r, nil
			}
			seen[found] = true
			r.Objects = append(r.Objects, found)
		}
	}
	return r, nil
}

// state answers with what is uncertain in the first line, and an object in each that follows.
func (h *histories) state(ctx context.Context, values url.Values) (any, error) {
	selector, err := labels.Parse(values.Get("selector"))
	if err != nil {
		return nil, badQuestion(fmt.Errorf("selector: %w", err))
	}
	db, ctx, release := h.ask(ctx)
	if db == nil {
		return nil, noHistory()
	}
	a := &asked{db: db.DB, ctx: ctx, q: values}
	head, query, err := a.stateQuery()
	if err == nil {
		err = db.slot(ctx)
	}
	if err != nil {
		release()
		return nil, classifyAnswer(err)
	}
	return admin.Lines(func(yield func(any, error) bool) {
		defer release()
		defer db.free()
		if !yield(head, nil) {
			return
		}
		for v, err := range db.State(query) {
			if err := cmp.Or(err, ctx.Err(), db.ending.Err()); err != nil {
				yield(nil, err)
				return
			}
			if !selector.Empty() && !selector.Matches(v.Labels()) {
				continue
			}
			r := stateLine{
				objectReport{v.Unit.Cluster(), v.Unit.GroupResource(), v.Event.Namespace, v.Event.Name}, v.Report(nil), nil,
			}
			if json.Valid(v.Event.Data) {
				r.Object = v.Event.Data
			}
			if !yield(r, nil) {
				return
			}
		}
	}), nil
}

// stateHead is the first line of a state.
type stateHead struct {
	At string `json:"at,omitempty"`
	uncertainty
	// Unlisted are resources of which no list had ended.
	Unlisted []string `json:"unlisted"`
}

// stateLine is each other one.
type stateLine struct {
	objectReport
	history.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

func (a *asked) stateQuery() (head stateHead, query history.StateQuery, err error) {
	p, err := a.point("at")
	cluster, clusterErr := a.cluster()
	if err := cmp.Or(err, clusterErr); err != nil {
		return head, query, err
	}
	query = history.StateQuery{Namespace: a.namespace(), At: p}
	if query.Units, err = a.units(cluster); err != nil {
		return head, query, err
	}
	if err := a.db.CheckState(query); err != nil {
		return head, query, err
	}
	holes, unlisted, err := a.db.UncertainState(query)
	if err != nil {
		return head, query, err
	}
	if head.uncertainty, err = a.uncertainty(holes); err != nil {
		return head, query, err
	}
	if !p.IsZero() {
		head.At = p.String()
	}
	head.Unlisted = []string{}
	for _, u := range unlisted {
		head.Unlisted = append(head.Unlisted, u.Unit.GroupResource())
	}
	return head, query, nil
}
