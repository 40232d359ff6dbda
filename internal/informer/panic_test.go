package informer_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// fragile is a Selector that panics for one object.
type fragile struct{ name string }

func (f fragile) Rejects(c *event.Change) (string, error) {
	if _, name := c.Key.Split(); name == f.name {
		list := make([]int, 0)
		_ = list[len(name)]
	}
	return "", nil
}

func (fragile) NeedsOld() bool { return false }

func TestPanic(t *testing.T) {
	t.Run("of a selector keeps nothing back and is counted", func(t *testing.T) {
		registry, out := prometheus.NewRegistry(), newOutbox()
		r := newRig(t, memory(t), []*outbox{out}, func(c *informer.StagesConfig) {
			c.Registerer, c.Listeners[0].Selector = registry, fragile{"poison"}
		})
		r.add("a", "11")
		r.add("poison", "12")
		r.add("b", "13")
		testkit.Want(t, out.wait(t, 3), "resource.added a ua/11",
			"resource.added poison upoison/12", "resource.added b ub/13")
		r.stop()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP bridge_informer_filter_errors_total Changes that were sent because the filter of a sink, or of all (sink empty), failed.
# TYPE bridge_informer_filter_errors_total counter
bridge_informer_filter_errors_total{sink="sink-0"} 1
`), "bridge_informer_filter_errors_total"); err != nil {
			t.Error(err)
		}
	})
	t.Run("of a maker gives an event that is a dead letter, and does not come back", func(t *testing.T) {
		db, out := memory(t), newOutbox()
		poisoned := func(c *informer.StagesConfig) {
			maker, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods, Trace: func(_, id string) string {
				if strings.HasPrefix(id, "upoison") {
					panic("a bug")
				}
				return ""
			}})
			testkit.OK(t, err)
			c.Listeners[0].Maker = maker
		}
		r := newRig(t, db, []*outbox{out}, poisoned)
		r.add("a", "11")
		r.add("poison", "12")
		r.add("b", "13")
		testkit.Want(t, out.wait(t, 3), "resource.added a ua/11",
			"resource.added poison upoison/12", "resource.added b ub/13")
		for _, e := range out.raw {
			if failed := e.Name == "poison"; failed != (e.Err != nil) || failed != (e.Data == nil) {
				t.Errorf("%s: %v, %s", e.ID, e.Err, e.Data)
			}
		}
		r.stop()
		r = newRig(t, db, []*outbox{out}, poisoned)
		r.add("poison", "12")
		r.add("c", "14")
		testkit.Want(t, out.wait(t, 1), "resource.added c uc/14")
		r.stop()
	})
}
