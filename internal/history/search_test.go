package history_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// The version of a time is found among few versions and among thousands, where one object says
// nothing about where the next one has its own: some were listed, so low versions have late times;
// some came into the selection again; and backlogs were observed out of order.
func TestVersionOfTime(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	random := rand.New(rand.NewPCG(7, 9))
	began := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	const span = 10_000 // seconds, and ten versions in each
	versions := map[string][]*event.Event{}
	for i, count := range []int{1, 2, 17, 3000, 40, 3000, 1, 300, 5, 3000} {
		name := fmt.Sprintf("web-%d", i)
		second, entered := 0, ""
		for n := range count {
			second += 1 + random.IntN(2*span/count)
			at := began.Add(time.Duration(second) * time.Second)
			switch {
			case count == 1: // a list has it, long after it was made
				second, at = 1, began.Add(span/2*time.Second)
			case i == 5 && n == count/2:
				entered = fmt.Sprintf("entered.%020d.", 10*second)
			case n%50 > 45 && second > 60: // observed late: what follows it was written before that
				at = at.Add(time.Duration(random.IntN(40)) * time.Second)
			}
			e := podVersion(i, 10*second+i, 0, at, "")
			e.Sequence = "00000000." + entered + fmt.Sprintf("%020s", e.ResourceVersion)
			e.ID = e.Sequence
			versions[name] = append(versions[name], e)
		}
		for from := 0; from < count; from += 500 {
			_, err := db.Writer.Append(t.Context(), versions[name][from:min(from+500, count)])
			testkit.OK(t, err)
		}
	}
	last := func(name string, at time.Time) (version string) {
		for _, e := range versions[name] {
			if !e.Time.After(at) {
				version = e.ResourceVersion
			}
		}
		return version
	}
	units := db.Questions.Resources.Units()
	for trial := range 200 {
		at := began.Add(time.Duration(random.Int64N(int64(2*span+100))) * time.Second)
		if trial%10 == 0 {
			at = began.Add(time.Duration(random.IntN(100)) * time.Second)
		}
		state := map[string]string{}
		for v, err := range db.Questions.Objects.State(query.StateQuery{Units: units, Namespace: "*", At: query.Point{At: at}}) {
			testkit.OK(t, err)
			state[v.Event.Name] = v.Event.ResourceVersion
		}
		for i := range len(versions) {
			name := "web-" + strconv.Itoa(i)
			want := last(name, at)
			if state[name] != want {
				t.Errorf("the state at %v has %s in version %q, want %q", at, name, state[name], want)
			}
			v, err := db.Questions.Objects.At(&query.Object{Unit: units[0], Namespace: "shop", Name: name}, query.Point{At: at})
			testkit.OK(t, err)
			if got := v != nil; got != (want != "") || got && v.Event.ResourceVersion != want {
				t.Errorf("%s at %v: %+v, want %q", name, at, v, want)
			}
		}
	}
}
