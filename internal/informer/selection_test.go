package informer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// versions is a Selector that keeps back the versions it is made of, and fails on "err".
type versions string

func (v versions) Rejects(c *event.Change) (string, error) {
	if string(c.Version) == "666" {
		return "", errors.New("no such overload")
	}
	if strings.Contains(string(v), string(c.Version)) {
		return "filter", nil
	}
	return "", nil
}

func (v versions) NeedsOld() bool { return strings.HasPrefix(string(v), "old") }

// selecting gives the informer a selector, and each listener one of its own; "" for none.
func selecting(all versions, each ...versions) option {
	return func(c *informer.StagesConfig) {
		if all != "" {
			c.Selector = all
		}
		for i, v := range each {
			if v != "" {
				c.Listeners[i].Selector = v
			}
		}
	}
}

// A change that is kept back is settled and known.
func TestFilteredChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, changes(t), selecting("old 11 13 15"))
		r.list(initial, "10", "a@4")
		r.update("a", "11")
		r.update("a", "12")
		r.update("a", "13")
		r.add("b", "14")
		r.delete("b", "15")
		r.bookmark("20")
		out.wait(t, 4)
		testkit.Want(t, out.steps(t), "4 from ", "12 from 11 by 12", "14 from ")
		r.stop()
		if got := r.informer.Log().Status().Watermark; got != "20" {
			t.Errorf("watermark %s", got)
		}
		r = newRig(t, db, []*outbox{out}, changes(t), selecting("old 11 13 15"))
		r.update("a", "13")
		r.add("b", "14") // covered by its delete, though that was not sent, until the watermark has passed it
		r.update("a", "21")
		out.wait(t, 1)
		if steps := out.steps(t); steps[len(steps)-1] != "21 from 13 by 21" {
			t.Error(steps)
		}
		r.stop()
	})
}

// A later change that one sink does not want, or none, is settled before an earlier one that a sink
// still has to take.
func TestFilteredOrder(t *testing.T) {
	for name, selectors := range map[string]option{
		"of two sinks one does not want it": selecting("", "12 13"),
		"nobody wants it":                   selecting("12 13"),
	} {
		for _, spooled := range []bool{false, true} {
			if spooled {
				name += ", and the first goes to disk"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db, slow, fast := memory(t), newOutbox(), newOutbox()
					options := []option{selectors, changes(t)}
					if spooled {
						options = append(options, spooling)
					}
					r := newRig(t, db, []*outbox{slow, fast}, options...)
					r.list(initial, "10", "a@4")
					slow.wait(t, 2)
					testkit.Eventually(t, "the list is settled", func() bool {
						testkit.OK(t, r.committer.Commit())
						return r.informer.Log().Status().Watermark == "10"
					})
					slow.setHold(true)
					r.update("a", "11")
					slow.wait(t, 1)
					r.update("a", "12")
					r.update("a", "13")
					r.bookmark("20")
					r.add("b", "21")
					slow.wait(t, 1)
					testkit.OK(t, r.committer.Commit())
					known := resource.Version("4") // 11 is in flight
					if spooled {
						known = "13"
						testkit.Eventually(t, "everything is on disk", func() bool {
							testkit.OK(t, r.committer.Commit())
							return r.informer.Log().Status().Watermark == "20"
						})
					} else if got := r.informer.Log().Status().Watermark; got == "20" {
						t.Errorf("watermark %s", got)
					}

					// The process dies, and the watch brings what was not settled again.
					after := newOutbox()
					r2 := newRig(t, db, []*outbox{after, newOutbox()}, options...)
					if rec, _, err := r2.indexer.Get("shop/a"); rec.Version != known || err != nil {
						t.Errorf("settled is %s, %v, want %s", rec.Version, err, known)
					}
					if !spooled {
						r2.update("a", "11")
						r2.update("a", "12")
						r2.update("a", "13")
					}
					r2.add("b", "21")
					r2.update("a", "22")
					after.wait(t, 3)
					steps := after.steps(t)
					slices.Sort(steps) // which object comes first is not promised
					testkit.Want(t, steps, "11 from 4 by 11", "21 from ", "22 from 13 by 22")
					r2.stop()
					if rec, _, err := r2.indexer.Get("shop/a"); rec.Version != "22" || err != nil {
						t.Errorf("settled is %s, %v", rec.Version, err)
					}
					slow.release()
				})
			})
		}
	}
}

// A selector that fails keeps nothing back.
func TestFilterFailureCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, reg := newOutbox(), prometheus.NewRegistry()
		r := newRig(t, memory(t), []*outbox{out}, selecting("", "5"), func(c *informer.StagesConfig) { c.Registerer = reg })
		r.add("a", "5")
		r.update("a", "666")
		testkit.Want(t, out.wait(t, 1), "resource.updated a ua/666")
		r.stop()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP bridge_informer_filter_errors_total Changes that were sent because the filter of a sink, or of all (sink empty), failed.
# TYPE bridge_informer_filter_errors_total counter
bridge_informer_filter_errors_total{sink="sink-0"} 1
# HELP bridge_informer_filtered_total Changes that were kept back from a sink, or from all (sink empty), by reason.
# TYPE bridge_informer_filtered_total counter
bridge_informer_filtered_total{reason="filter",sink="sink-0"} 1
`), "bridge_informer_filter_errors_total", "bridge_informer_filtered_total"); err != nil {
			t.Error(err)
		}
	})
}
