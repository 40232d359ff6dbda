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

// existing is the version at a parameter's point, the last one when it is left out.
func (a *asked) existing(
	o *query.Object, name string,
) (v *query.Version, holes []*query.Notice, err error) {
	p, err := a.point(name)
	if err != nil {
		return nil, nil, err
	}
	if p.IsZero() {
		v, err = a.history.Objects.At(o, p)
	} else {
		v, err = a.history.Objects.Existing(o, p)
	}
	if err == nil && !p.IsZero() {
		holes, err = a.history.Coverage.Uncertain(o, v, p)
	}
	return v, holes, err
}

func (a *asked) object(_ context.Context) (any, error) {
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
	From    query.VersionReport  `json:"from"`
	To      query.VersionReport  `json:"to"`
	Changed []query.ChangeReport `json:"changed"`
}

func (a *asked) diff(_ context.Context) (any, error) {
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	to, holes, err := a.existing(o, "to")
	if err != nil {
		return nil, err
	}
	var from *query.Version
	if a.q.Get("from") == "" {
		if from, err = a.history.Objects.VersionBefore(to); err == nil && from == nil {
			err = notFound(fmt.Errorf("%s has no version before resourceVersion %s", o,
				to.Event.ResourceVersion))
		}
	} else {
		var more []*query.Notice
		from, more, err = a.existing(o, "from")
		holes = append(holes, more...)
	}
	if err != nil {
		return nil, err
	}
	if from.Form() != to.Form() {
		return nil, notFound(fmt.Errorf("the two versions can't be compared: of one the history has "+
			"the %s, of the other the %s", from.Form(), to.Form()))
	}
	r := diffReport{
		objectReport: reportObject(o), From: from.Report(nil), To: to.Report(nil),
		Changed: []query.ChangeReport{},
	}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	for _, c := range diff.Changes(from.Event.Data, to.Event.Data) {
		r.Changed = append(r.Changed, query.ChangeReport{Field: c.Path, Old: c.Old, New: c.New})
	}
	return r, nil
}

// versionsReport answers versions.
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

func (a *asked) versions(ctx context.Context) (any, error) {
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
	holes, err := a.history.Coverage.Holes(o, since.At, until.At)
	if err != nil {
		return nil, err
	}
	r := versionsReport{objectReport: reportObject(o), Versions: []query.VersionReport{}}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	last := newest{count: limit, bytes: mostBytes}
	for v, err := range a.history.Objects.Versions(o, since.At, until.At) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		last.add(v)
	}
	if last.before == nil && len(last.versions) > 0 {
		if last.before, err = a.history.Objects.VersionBefore(last.versions[0]); err != nil {
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

// timelineReport is what happened.
type timelineReport struct {
	uncertainty
	Changes []query.TimelineReport `json:"changes"`
	// More says that the answer was cut: ask again with since, or narrow it.
	More       bool `json:"more"`
	Heartbeats int  `json:"heartbeats"`
}

const (
	defaultChanges = 500
	mostChanges    = 10_000
)

func (a *asked) timeline(ctx context.Context) (any, error) {
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
	holes, err := a.history.Coverage.HolesOf(units, since.At, until.At)
	if err != nil {
		return nil, err
	}
	r := timelineReport{}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	wanted := func(u *record.Unit) bool { return slices.Contains(units, u) }
	r.Changes = make([]query.TimelineReport, 0, min(limit, defaultChanges))
	bytes := 0
	for e, err := range a.history.Timeline.Entries(cluster, a.namespace(), since.At, until.At, wanted) {
		switch {
		case cmp.Or(err, ctx.Err()) != nil:
			return nil, cmp.Or(err, ctx.Err())
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

// state answers with what is uncertain in the first line, and an object in each that follows.
func (h *Set) state(ctx context.Context, values url.Values) (any, error) {
	selector, err := labels.Parse(values.Get("selector"))
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
	a := &asked{history: o.history, q: values}
	head, wanted, err := a.stateQuery()
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
		for v, err := range o.history.Objects.State(wanted) {
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
	query.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

func (a *asked) stateQuery() (head stateHead, wanted query.StateQuery, err error) {
	p, err := a.point("at")
	cluster, clusterErr := a.cluster()
	if err := cmp.Or(err, clusterErr); err != nil {
		return head, wanted, err
	}
	wanted = query.StateQuery{Namespace: a.namespace(), At: p}
	if wanted.Units, err = a.units(cluster); err != nil {
		return head, wanted, err
	}
	if err := a.history.Coverage.CheckState(wanted); err != nil {
		return head, wanted, err
	}
	holes, unlisted, err := a.history.Coverage.UncertainState(wanted)
	if err != nil {
		return head, wanted, err
	}
	if head.uncertainty, err = a.uncertainty(holes); err != nil {
		return head, wanted, err
	}
	if !p.IsZero() {
		head.At = p.String()
	}
	head.Unlisted = []string{}
	for _, u := range unlisted {
		head.Unlisted = append(head.Unlisted, u.Unit.GroupResource())
	}
	return head, wanted, nil
}
