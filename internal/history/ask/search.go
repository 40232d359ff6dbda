package ask

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/history/record"
)

// resourcesReport says of what there is a history.
type resourcesReport struct {
	Kept      bool      `json:"kept"`
	Clusters  []string  `json:"clusters"`
	Resources []string  `json:"resources"`
	Horizon   time.Time `json:"horizon,omitzero"`
}

func (a *asked) resources(_ context.Context) (any, error) {
	r := resourcesReport{Kept: true, Clusters: a.history.Resources.Clusters(), Resources: []string{}}
	for _, u := range a.history.Resources.Units() {
		if u.Resource != "" && u.Source != record.ArchiveSource {
			r.Resources = append(r.Resources, u.GroupResource())
		}
	}
	slices.Sort(r.Resources)
	r.Resources = slices.Compact(r.Resources)
	var err error
	r.Horizon, err = a.history.Coverage.Horizon()
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
func (a *asked) search(ctx context.Context) (any, error) {
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
	units, err := a.history.Resources.Select(cluster, kinds)
	if err != nil {
		return nil, err
	}
	r := searchReport{Objects: []objectReport{}}
	seen := map[objectReport]bool{} // of several informers
	for _, u := range units {
		for o, err := range a.history.Objects.All(u, a.q.Get("namespace")) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
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
