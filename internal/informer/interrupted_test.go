package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/resource"
)

// A list without a position finds what was told before it: what happened in between is missing, and its deletes are inferred.
func TestASnapshotThatIsNotTheFirstIsAGap(t *testing.T) {
	t.Run("after one that a stop has cut short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			r := newRig(t, db, []*outbox{out})
			ok(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "4")
			r.replace("b", "5")
			want(t, out.wait(t, 2), "resource.added a ua/4 initial", "resource.added b ub/5 initial")
			r.stop()

			r = newRig(t, db, []*outbox{out})
			r.list(initial, "20", "a@14")
			want(t, out.wait(t, 4),
				"informer.gap  all/pods/gap// inferred",
				"resource.updated a ua/14 initial",
				"resource.deleted b ub/deleted inferred",
				"informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
	t.Run("after one that broke off, and is told once however often it does", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out})
			ok(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "4")
			out.wait(t, 1)
			ok(t, r.fifo.BeginReplace(t.Context(), initial))
			want(t, out.wait(t, 1), "informer.gap  all/pods/gap// inferred")
			r.list(initial, "20")
			want(t, out.wait(t, 2), "resource.deleted a ua/deleted inferred", "informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
	t.Run("but not after one that told nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out})
			ok(t, r.fifo.BeginReplace(t.Context(), initial))
			r.list(initial, "20", "a@4")
			want(t, out.wait(t, 2), "resource.added a ua/4 initial", "informer.synced  all/pods/synced/20")
			r.list(resource.Relist{Reason: resource.ReasonExpired, From: "20", To: "30"}, "30", "a@4")
			want(t, out.wait(t, 2), "informer.gap  all/pods/gap/20/30 inferred", "informer.synced  all/pods/synced/30")
			r.stop()
		})
	})
}
