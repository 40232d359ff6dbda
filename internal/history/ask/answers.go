package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// stateOf is an object at a point.
type stateOf struct {
	objectReport
	uncertainty
	query.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

// existing returns the version at the point of a parameter, the last one where it is left out.
func (q *request) existing(
	o *query.Object, parameter string,
) (v *query.Version, holes []*query.Notice, err error) {
	p, err := q.point(parameter)
	if err != nil {
		return nil, nil, err
	}
	return q.Existing(o, p)
}

func (q *request) object(_ context.Context) (any, error) {
	o, err := q.findObject()
	if err != nil {
		return nil, err
	}
	v, holes, err := q.existing(o, "at")
	if err != nil {
		return nil, err
	}
	r := stateOf{objectReport: reportObject(o), VersionReport: v.Report(nil)}
	if err := q.addWho(&r.VersionReport, v); err != nil {
		return nil, err
	}
	p, err := q.point("at")
	if err != nil {
		return nil, err
	}
	if r.uncertainty, err = q.uncertainty([]*record.Unit{o.Unit}, p, holes); err != nil {
		return nil, err
	}
	if json.Valid(v.Event.Data) {
		r.Object = v.Event.Data
	}
	return r, nil
}

// addWho adds to a report who made its version, and for whom.
func (q *request) addWho(r *query.VersionReport, v *query.Version) error {
	err := q.actors.AddTo(r, v)
	if err != nil || r.Actor == nil {
		return err
	}
	before, err := q.History.Objects.VersionBefore(v)
	if err != nil {
		return err
	}
	return q.initiators.AddTo(r, v, before)
}

// diffReport is what differs between two versions.
type diffReport struct {
	objectReport
	uncertainty
	// From is left out where the object did not exist before To.
	From    *query.VersionReport `json:"from,omitempty"`
	To      query.VersionReport  `json:"to"`
	Changed []query.ChangeReport `json:"changed"`
}

func (q *request) diff(_ context.Context) (any, error) {
	o, err := q.findObject()
	if err != nil {
		return nil, err
	}
	from, to, holes, err := q.compared(o)
	if err != nil {
		return nil, err
	}
	r := diffReport{
		objectReport: reportObject(o), To: to.Report(nil), Changed: []query.ChangeReport{},
	}
	if err := q.addWho(&r.To, to); err != nil {
		return nil, err
	}
	var older, newer []byte
	if from != nil {
		older = from.Event.Data
		r.From = new(from.Report(nil))
		if err := q.addWho(r.From, from); err != nil {
			return nil, err
		}
	}
	if !to.Deleted() {
		newer = to.Event.Data
	}
	p, err := q.point("to")
	if err != nil {
		return nil, err
	}
	if r.uncertainty, err = q.uncertainty([]*record.Unit{o.Unit}, p, holes); err != nil {
		return nil, err
	}
	for _, c := range diff.Changes(older, newer) {
		r.Changed = append(r.Changed, query.ChangeReport{Field: c.Path, Old: c.Old, New: c.New})
	}
	return r, nil
}

// compared returns the versions that a difference is between. The older one is nil where the object
// did not exist before the newer one. The newer one may be the end of the object.
func (q *request) compared(
	o *query.Object,
) (from, to *query.Version, holes []*query.Notice, err error) {
	to, holes, err = q.existing(o, "to")
	if errors.Is(err, query.ErrDidNotExist) {
		to, err = q.end(o, err)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if q.parameters.Get("from") == "" {
		from, err = q.History.Objects.VersionBefore(to)
		if err == nil && from == nil && to.Event.Op != event.Added {
			_, err = q.Previous(o, to) // it is not kept
		}
	} else {
		var more []*query.Notice
		from, more, err = q.existing(o, "from")
		holes = append(holes, more...)
	}
	if err == nil && from != nil && !to.Deleted() {
		err = CheckComparable(from, to)
	}
	return from, to, holes, err
}

// end returns the version with which an object ended, where that is what is asked for; else why the
// object did not exist.
func (q *request) end(o *query.Object, why error) (*query.Version, error) {
	p, err := q.point("to")
	if err != nil || p.Version == 0 {
		return nil, cmp.Or(err, why)
	}
	v, err := q.History.Objects.At(o, p)
	if err == nil && (v == nil || !v.Deleted() || v.Number() != p.Version) {
		err = why
	}
	return v, err
}

type versionsReport struct {
	objectReport
	uncertainty
	// Versions are the newest ones, in their order; Earlier is how many came before in the time
	// asked for.
	Versions []query.VersionReport `json:"versions"`
	Earlier  int                   `json:"earlier,omitempty"`
}

// Bounds of answers that are one document.
const (
	defaultVersions = 500
	mostVersions    = 5000

	// mostBytes is of the objects of versions, or of the changes of a timeline: objects may be
	// large, and each of their versions too.
	mostBytes = 32 << 20
)

func (q *request) versions(ctx context.Context) (any, error) {
	since, err := q.point("since")
	until, untilErr := q.point("until")
	limit, limitErr := q.limit(defaultVersions, mostVersions)
	if err := cmp.Or(err, untilErr, limitErr); err != nil {
		return nil, err
	}
	o, err := q.findObject()
	if err != nil {
		return nil, err
	}
	holes, err := q.History.Coverage.Holes(o, since.At, until.At)
	if err != nil {
		return nil, err
	}
	r := versionsReport{objectReport: reportObject(o), Versions: []query.VersionReport{}}
	if r.uncertainty, err = q.uncertainty([]*record.Unit{o.Unit}, until, holes); err != nil {
		return nil, err
	}
	last := newest{count: limit, bytes: mostBytes}
	for v, err := range q.History.Objects.Versions(o, since.At, until.At) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		last.add(v)
	}
	if last.before == nil && len(last.versions) > 0 {
		if last.before, err = q.History.Objects.VersionBefore(last.versions[0]); err != nil {
			return nil, err
		}
	}
	r.Earlier = last.earlier
	before := last.before
	for _, v := range last.versions {
		report := v.Report(before)
		err := cmp.Or(q.actors.AddTo(&report, v), q.initiators.AddTo(&report, v, before))
		if err != nil {
			return nil, err
		}
		r.Versions = append(r.Versions, report)
		before = v
	}
	return r, nil
}

// newest keeps the last versions that it is given: at most count of them, and at most bytes of
// objects, but always one.
type newest struct {
	count, bytes int
	versions     []*query.Version
	before       *query.Version // the one before them; nil for none
	earlier      int            // how many came before them
}

func (n *newest) add(v *query.Version) {
	n.versions = append(n.versions, v)
	n.bytes -= len(v.Event.Data)
	for len(n.versions) > 1 && (len(n.versions) > n.count || n.bytes < 0) {
		n.before = n.versions[0]
		n.versions = slices.Delete(n.versions, 0, 1)
		n.bytes += len(n.before.Event.Data)
		n.earlier++
	}
}

// state answers with what is uncertain in the first line, and an object in each that follows.
func (h *Set) state(ctx context.Context, parameters url.Values) (any, error) {
	selector, err := labels.Parse(parameters.Get("selector"))
	if err != nil {
		return nil, badQuestion(fmt.Errorf("selector: %w", err))
	}
	o, ctx, release := h.ask(ctx)
	if o == nil {
		return nil, noHistory()
	}
	if err := o.slot(ctx); err != nil {
		release()
		return nil, err
	}
	head, wanted, err := newRequest(o, parameters).findState()
	o.free()
	if err != nil {
		release()
		return nil, classifyAnswer(err)
	}
	return iter.Seq2[any, error](func(yield func(any, error) bool) {
		defer release()
		hasSlot := false
		defer func() {
			if hasSlot {
				o.free()
			}
		}()
		// give passes a line on. A reader may be slow: while it is waited for, others may ask.
		give := func(line any) bool {
			if hasSlot {
				o.free()
			}
			if hasSlot = false; !yield(line, nil) {
				return false
			}
			if err := o.slot(ctx); err != nil {
				yield(nil, err)
				return false
			}
			hasSlot = true
			return true
		}
		if !give(head) {
			return
		}
		for v, err := range o.history.Objects.State(wanted.StateQuery) {
			if err == nil && o.isEnding() {
				err = context.Canceled
			}
			if err := cmp.Or(err, ctx.Err()); err != nil {
				yield(nil, err)
				return
			}
			if !selector.Empty() && !selector.Matches(v.Labels()) {
				continue
			}
			r := stateLine{
				objectReport{v.Unit.Cluster(), v.Unit.GroupResource(), v.Event.Namespace, v.Event.Name},
				v.Report(nil), nil,
			}
			if json.Valid(v.Event.Data) {
				r.Object = v.Event.Data
			}
			if !give(r) {
				return
			}
		}
		for v, err := range o.history.Objects.Arrivals(wanted.StateQuery) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
				yield(nil, err)
				return
			}
			of := &query.Object{Unit: v.Unit, Namespace: v.Event.Namespace, Name: v.Event.Name}
			if selector.Matches(v.Labels()) && !give(arrivalLine{reportObject(of), v.LateChange}) {
				return
			}
		}
	}), nil
}

// stateHead is the first line of a state.
type stateHead struct {
	At      string `json:"at,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	uncertainty
	// Unlisted are resources of which no list had ended.
	Unlisted []string `json:"unlisted"`
}

type stateLine struct {
	objectReport
	query.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

// arrivalLine is an object that may have existed by then; see query.Objects.Arrivals.
type arrivalLine struct {
	objectReport
	MayHaveExisted *query.LateChange `json:"mayHaveExisted"`
}

func (q *request) findState() (head stateHead, found State, err error) {
	p, err := q.point("at")
	if err != nil {
		return head, found, err
	}
	found, err = q.ofSeveral().State(q.kinds(), p)
	if err != nil {
		return head, found, err
	}
	holes := append(found.Holes, found.Unwatched...)
	if head.uncertainty, err = q.uncertainty(found.Units, p, holes); err != nil {
		return head, found, err
	}
	head.Cluster = q.Cluster
	if !p.IsZero() {
		head.At = p.String()
	}
	head.Unlisted = []string{}
	for _, u := range found.Unlisted {
		head.Unlisted = append(head.Unlisted, u.Unit.GroupResource())
	}
	return head, found, nil
}

// lossesReport is what may be missing of the whole cluster, and the times without a watch, newest
// first.
type lossesReport struct {
	Cluster string    `json:"cluster,omitempty"`
	Horizon time.Time `json:"horizon,omitzero"`
	// Ends is as in other answers.
	Ends   time.Time `json:"ends,omitzero"`
	Losses []loss    `json:"losses"`
	// More is how many earlier ones are not in the answer.
	More int `json:"more,omitempty"`
}

// loss is a hole, of one resource or of several at once.
type loss struct {
	query.HoleReport
	Resources int `json:"resources"`
}

func (q *request) losses(_ context.Context) (any, error) {
	since, err := q.point("since")
	if err != nil {
		return nil, err
	}
	if since.Version > 0 {
		return nil, badQuestion(errors.New("since of losses is a time"))
	}
	if since.At.IsZero() {
		since.At = time.Now().AddDate(0, 0, -7)
	}
	cluster, err := q.OneCluster()
	if err != nil {
		return nil, err
	}
	units, err := q.selectUnits(cluster, nil, query.Point{})
	if err != nil {
		return nil, err
	}
	holes, err := q.History.Coverage.HolesOf(units, since.At, time.Time{})
	if err != nil {
		return nil, err
	}
	u, err := q.uncertainty(units, query.Point{}, nil)
	if err != nil {
		return nil, err
	}
	r := lossesReport{Cluster: cluster, Horizon: u.Horizon, Ends: u.Ends, Losses: []loss{}}
	groups := groupLosses(holes)
	if r.More = max(len(groups)-maxHoles, 0); r.More > 0 {
		groups = groups[r.More:]
	}
	for _, one := range slices.Backward(groups) {
		r.Losses = append(r.Losses, one)
	}
	return r, nil
}

// groupLosses makes one of those that have the same reason and overlap: a broken watch of all
// resources is one event. Each resource was known up to another time.
func groupLosses(holes []*query.Notice) (groups []loss) {
	reports := make([]query.HoleReport, 0, len(holes))
	for _, m := range holes {
		reports = append(reports, m.Report())
	}
	slices.SortStableFunc(reports, func(a, b query.HoleReport) int { return a.Since.Compare(b.Since) })
	last := map[string]int{} // the newest group of a reason
	resources := map[int]map[string]bool{}
	for _, r := range reports {
		i, isKnown := last[r.Reason]
		if isKnown && !r.Since.After(latest(groups[i].Since, groups[i].Until)) {
			groups[i].Until = latest(groups[i].Until, r.Until)
		} else {
			i = len(groups)
			groups, last[r.Reason], resources[i] = append(groups, loss{HoleReport: r}), i, map[string]bool{}
		}
		resources[i][r.Resource] = true
		groups[i].Resources = len(resources[i])
	}
	return groups
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
