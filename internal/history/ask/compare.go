package ask

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// compareReport is what is different between two times, whatever happened between.
type compareReport struct {
	Cluster string `json:"cluster,omitempty"`
	uncertainty
	A       time.Time          `json:"a"`
	B       time.Time          `json:"b"`
	Objects []objectDifference `json:"objects"`
	// Same is how many objects changed, and are as before, but for their status.
	Same int `json:"same,omitempty"`
	// Children are objects that a controller owns: they are not in the answer.
	Children int `json:"children,omitempty"`
	// More: other objects changed too.
	More bool `json:"more,omitempty"`
}

// objectDifference is an object that differs between the two times.
type objectDifference struct {
	objectReport
	Operation string `json:"operation"` // added, updated, deleted
	// From and To are the versions at both times; "" where the object did not exist.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Changes is how many changes there were.
	Changes int                  `json:"changes"`
	Changed []query.ChangeReport `json:"changed,omitempty"`
	// More is how many fields that differ are not in Changed.
	More int `json:"moreChanged,omitempty"`
	// Recreated: it was deleted between, and created again.
	Recreated bool `json:"recreated,omitempty"`
}

// mostDifferent bounds the objects that are compared.
const mostDifferent = 2000

func (q *request) compare(ctx context.Context) (any, error) {
	a, err := q.point("a")
	b, bErr := q.point("b")
	if err := cmp.Or(err, bErr); err != nil {
		return nil, err
	}
	if a.Version > 0 || b.Version > 0 {
		return nil, badQuestion(errors.New("a and b are times"))
	}
	now := time.Now()
	if b.At.IsZero() {
		b.At = now
	}
	if a.At.IsZero() {
		a.At = now.Add(-time.Hour)
	}
	if b.At.Before(a.At) {
		a, b = b, a
	}
	happened, err := q.ofSeveral().Timeline(q.kinds(), a, b)
	if err != nil {
		return nil, err
	}
	r := &compareReport{Cluster: q.Cluster, A: a.At, B: b.At, Objects: []objectDifference{}}
	if r.uncertainty, err = q.uncertainty(happened.Units, b, happened.Holes); err != nil {
		return nil, err
	}
	counts, order := map[query.Object]int{}, []query.Object(nil)
	for e, err := range happened.Entries {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		if e.IsHeartbeat() || slices.Contains(derivedResources, e.Unit.GroupResource()) {
			continue
		}
		o := objectOf(e)
		if counts[o] == 0 {
			if len(order) == mostDifferent {
				r.More = true
				continue
			}
			order = append(order, o)
		}
		counts[o]++
	}
	owners := newOwners(q.History, q.recent)
	for _, o := range order {
		by, err := owners.find(o)
		if err != nil {
			return nil, err
		}
		if by.name != "" {
			r.Children++
			continue
		}
		if err := cmp.Or(q.compareObject(r, o, counts[o]), ctx.Err()); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// compareObject adds an object where it is different.
func (q *request) compareObject(r *compareReport, o query.Object, changes int) error {
	older, err := q.bodyAt(&o, r.A)
	newer, newerErr := q.bodyAt(&o, r.B)
	if err := cmp.Or(err, newerErr); err != nil {
		return err
	}
	c := objectDifference{objectReport: reportObject(&o), Changes: changes}
	switch {
	case older == nil && newer == nil:
		r.Same++ // it came and went
		return nil
	case older == nil:
		c.Operation, c.To = string(event.Added), newer.Event.ResourceVersion
	case newer == nil:
		c.Operation, c.From = string(event.Deleted), older.Event.ResourceVersion
	default:
		c.Operation = string(event.Updated)
		c.From, c.To = older.Event.ResourceVersion, newer.Event.ResourceVersion
		c.Recreated = older.Event.UID != newer.Event.UID
		if CheckComparable(older, newer) == nil {
			c.Changed, c.More = reportCompared(older, newer)
		}
		if c.From == c.To || !c.Recreated && CheckComparable(older, newer) == nil && len(c.Changed) == 0 {
			r.Same++
			return nil
		}
	}
	r.Objects = append(r.Objects, c)
	return nil
}

// bodyAt returns the version of an object at a time; nil where it did not exist.
func (q *request) bodyAt(o *query.Object, at time.Time) (*query.Version, error) {
	v, err := q.History.Objects.At(o, query.Point{At: at})
	if err != nil || v == nil || v.Deleted() {
		return nil, err
	}
	return v, nil
}

// reportCompared returns what differs, without what the API server notes and the status, and how
// many more fields differ.
func reportCompared(older, newer *query.Version) (list []query.ChangeReport, more int) {
	const most = 32 // as in a timeline
	for _, c := range diff.Changes(older.Event.Data, newer.Event.Data) {
		isOfLife := c.Path == "metadata.uid" || c.Path == "metadata.creationTimestamp"
		if c.IsHeartbeat() || isOfLife || c.Path == "status" || strings.HasPrefix(c.Path, "status.") {
			continue
		}
		if len(list) == most {
			more++
			continue
		}
		list = append(list, query.ChangeReport{Field: c.Path, Old: c.Old, New: c.New})
	}
	return list, more
}
