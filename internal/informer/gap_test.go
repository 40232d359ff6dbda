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
