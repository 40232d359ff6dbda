package ask

import (
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
)

// Belongings are an object, and all that it owned at some time: also what has gone, and what
// another object owned that it owned.
type Belongings struct {
	root  objectReport
	spans map[objectReport][]keys.IndexSpan
}

// Belongings finds what an object owned from one time to another: every object that had its name
// meanwhile. A zero until is now.
func (q *Question) Belongings(o *query.Object, since, until time.Time) (*Belongings, error) {
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
	b := &Belongings{root: reportObject(o), spans: map[objectReport][]keys.IndexSpan{}}
	for i := 0; i < len(owners); i++ {
		for p, err := range q.History.Objects.Had(all, query.ByOwner(owners[i]), since, until) {
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
func (b *Belongings) Has(e *query.Entry) bool {
	o := objectOf(e)
	of := reportObject(&o)
	return of == b.root || slices.ContainsFunc(b.spans[of], func(s keys.IndexSpan) bool {
		return s.Has(keys.Seconds(e.Time))
	})
}
