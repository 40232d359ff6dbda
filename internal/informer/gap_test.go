package informer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/controller"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A run that died before it knew of anything has begun the epoch already: what it may have sent
// keeps its ids.
func TestEpochAfterLostState(t *testing.T) {
	for _, test := range []struct{ own, held, want int }{{0, 0, 1}, {0, 4, 5}, {5, 4, 5}, {5, 5, 5}, {5, 7, 8}} {
		t.Run(fmt.Sprintf("of own %d and held %d is %d", test.own, test.held, test.want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, out := memory(t), newOutbox()
				r := newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) {
					testkit.OK(t, c.Indexer.Meta().AdoptEpoch(test.own))
					c.EarlierRuns = func(context.Context) controller.EarlierRuns {
						return controller.EarlierRuns{Holding: []string{"sink-0"}, Epoch: test.held}
					}
				})
				r.list(initial, "10", "a@4")
				id := fmt.Sprintf("/epoch/%d", test.want)
				testkit.Want(t, out.wait(t, 3),
					"informer.gap  all/pods/gap//"+id+" inferred",
					"resource.added a ua/4"+id+" initial",
					"informer.synced  all/pods/synced/10"+id)
				r.stop()
				epoch, err := r.indexer.Meta().Epoch()
				testkit.OK(t, err)
				if epoch.Number != test.want || epoch.Open {
					t.Errorf("on disk: %+v", epoch)
				}
			})
		})
	}
}

// A quiet resource whose version the API server has forgotten has a gap only where a list shows
// that something was missed.
func TestQuietGap(t *testing.T) {
	quiet := expired
	quiet.Quiet = true
	for _, test := range []struct {
		name  string
		items []string
		want  []string
	}{
		{"nothing", []string{"a@4", "b@7"}, nil},
		{"an update", []string{"a@4", "b@17"}, []string{
			"informer.gap  all/pods/gap/3/20 inferred", "resource.updated b ub/17 inferred",
		}},
		{"a new object", []string{"a@4", "b@7", "c@18"}, []string{
			"informer.gap  all/pods/gap/3/20 inferred", "resource.added c uc/18 inferred",
		}},
		{"a delete", []string{"a@4"}, []string{
			"informer.gap  all/pods/gap/3/20 inferred", "resource.deleted b ub/deleted inferred",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out})
				r.list(initial, "10", "a@4", "b@7")
				out.wait(t, 3)
				r.list(quiet, "20", test.items...)
				want := append(test.want, "informer.synced  all/pods/synced/20")
				testkit.Want(t, out.wait(t, len(want)), want...)
				r.stop()
			})
		})
	}
	t.Run("a list that began again, while no watch was open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out})
			r.list(initial, "10", "a@4")
			out.wait(t, 2)
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), quiet))
			r.list(expired, "20", "a@4")
			testkit.Want(t, out.wait(t, 2), "informer.gap  all/pods/gap/3/20 inferred", "informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
}
