package ask

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

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
