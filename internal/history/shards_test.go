package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A shard's gap is one for its own objects, and no list of another shard heals it. Versions of this
// test are seconds.
func TestShards(t *testing.T) {
	began := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	about := func(shard int, op event.Op, version int, data string) *event.Event {
		return &event.Event{
			ID: fmt.Sprintf("all/pods/shard-%d-of-2/%s/%d", shard, op, version), Source: "/clusters/prod",
			Type: "dev.kubebridge.informer." + string(op), Op: op, Informer: "all",
			ObjectAttributes: event.ObjectAttributes{
				Resource: "pods", Kind: "Pod", ResourceVersion: fmt.Sprint(version),
			}, Time: at(version), Data: []byte(data),
		}
	}
	db := openDir(t, t.TempDir())
	events := []*event.Event{about(0, event.Synced, 100, `{}`)}
	objects := map[int]*query.Object{} // one of each shard
	for i := 0; len(objects) < 2; i++ {
		e := podVersion(i, 50, 0, at(50), "")
		for shard := range 2 {
			if (resource.Shard{Index: shard, Count: 2}).Has(resource.Type{Resource: "pods"}, e.Namespace, e.Name) {
				objects[shard] = &query.Object{Namespace: e.Namespace, Name: e.Name}
			}
		}
		events = append(events, e)
	}
	_, err := db.Writer.Append(t.Context(), append(events,
		about(1, event.Synced, 200, `{}`), about(1, event.Progress, 300, `{}`)))
	testkit.OK(t, err)
	_, err = db.Writer.Append(t.Context(), []*event.Event{
		about(1, event.Gap, 400, `{"reason":"expired","from":"300","to":"400"}`),
		about(0, event.Synced, 500, `{}`), about(0, event.Progress, 600, `{}`),
	})
	testkit.OK(t, err)
	units := db.Questions.Resources.Units()
	for shard, want := range []int{0, 1} {
		o := objects[shard]
		o.Unit = units[0]
		v, err := db.Questions.Objects.At(o, query.Point{At: at(550)})
		testkit.OK(t, err)
		holes, err := db.Questions.Coverage.Uncertain(o, v, query.Point{At: at(550)})
		if err != nil || len(holes) != want {
			t.Errorf("shard %d: %d holes, %v; want %d", shard, len(holes), err, want)
		}
	}
	state := query.StateQuery{Units: units, Namespace: "*", At: query.Point{At: at(550)}}
	holes, unlisted, err := db.Questions.Coverage.UncertainState(state)
	if err != nil || len(holes) != 1 || len(unlisted) > 0 {
		t.Errorf("%d holes of the state, %d unlisted, %v", len(holes), len(unlisted), err)
	}
	state.At.At = at(150)
	if _, unlisted, err = db.Questions.Coverage.UncertainState(state); err != nil || len(unlisted) != 1 || !unlisted[0].Until.Equal(at(200)) {
		t.Errorf("one shard was not listed: %+v, %v", unlisted, err)
	}
	list, err := db.Questions.Coverage.Intervals(query.CoverageQuery{Units: units, Namespace: "*"})
	testkit.OK(t, err)
	var got []string
	for _, i := range list {
		got = append(got, fmt.Sprintf("%s %s-%s %s", i.Shard, i.From, i.To, i.Gap))
	}
	if want := "[0/2 100-600  1/2 200-300  1/2 300- expired]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
