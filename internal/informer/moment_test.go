package informer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A clock may show one time twice, as it does in a synctest bubble: what was observed at the moment
// of spooling is spooled too.
func TestRewindSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.list(initial, "98", "a@50", "b@60")
		out.wait(t, 3)
		out.setHold(true)
		r.delete("b", "99")
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "99", To: "55"}, "55", "a@50")
		r.add("b", "70") // a version that the lost tombstone would cover
		synctest.Wait()
		out.release()
		testkit.Want(t, out.wait(t, 4),
			"resource.deleted b ub/deleted",
			"informer.gap  all/pods/gap/99/55/epoch/1 inferred",
			"informer.synced  all/pods/synced/55/epoch/1",
			"resource.added b ub/70/epoch/1")
		r.stop()
	})
}

// Cursors that do not move are not written again.
func TestIdleCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		out.setHold(true)
		r := newRig(t, db, []*outbox{out}, spooling)
		for v := 100; v < 300; v++ {
			r.update("a", fmt.Sprint(v))
		}
		out.wait(t, 100) // its window is full
		empty := func() bool {
			batch := db.NewBatch()
			defer func() { testkit.OK(t, batch.Commit()) }()
			log := r.informer.Log()
			checkpoint := log.Checkpoint()
			checkpoint.Write(batch)
			log.Committed(checkpoint, errors.New("only to look"))
			return batch.Empty()
		}
		testkit.Eventually(t, "something lies on disk", func() bool { return r.informer.Status().Log.DiskBytes > 0 })
		testkit.Eventually(t, "all cursors are on disk", func() bool {
			time.Sleep(30 * time.Millisecond) // more than they wait
			testkit.OK(t, r.committer.Commit())
			return empty()
		})
		if cursors, err := r.indexer.Log().Cursors(); len(cursors) != 1 || err != nil {
			t.Errorf("cursors %v, %v", cursors, err)
		}
		out.release()
		r.stop()
	})
}
