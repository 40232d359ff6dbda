package ask

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/history/query"
)

// lossesReport is what may be missing of the whole cluster, and the times without a watch, newest
// first.
type lossesReport struct {
	Horizon time.Time `json:"horizon,omitzero"`
	Losses  []loss    `json:"losses"`
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
	r := lossesReport{Losses: []loss{}}
	if r.Horizon, err = q.History.Coverage.Horizon(); err != nil {
		return nil, err
	}
	groups := groupLosses(holes)
	if r.More = max(len(groups)-maxHoles, 0); r.More > 0 {
		groups = groups[r.More:]
	}
	for _, one := range slices.Backward(groups) {
		r.Losses = append(r.Losses, one)
	}
	return r, nil
}

// groupLosses makes one of those that have the same reason at the same time: a broken watch of all
// resources is one event.
func groupLosses(holes []*query.Notice) (groups []loss) {
	type key struct {
		reason       string
		since, until int64
	}
	at := map[key]int{}
	for _, m := range holes {
		r := m.Report()
		const near = 5 // seconds between the ends of one thing that concerns all resources
		k := key{r.Reason, r.Since.Unix() / near, r.Until.Unix() / near}
		i, isKnown := at[k]
		if !isKnown {
			i = len(groups)
			groups, at[k] = append(groups, loss{HoleReport: r}), i
		}
		groups[i].Resources++
	}
	return groups
}
