package informer_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A rewind that is met again after a crash is the same epoch, and a later one is not.
func TestRewindEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rewound := func(from resource.Version) resource.Relist {
			return resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: from, To: "60"}
		}
		db, before := memory(t), newOutbox()
		died := newRig(t, db, []*outbox{before})
		died.list(initial, "100", "a@95")
		before.wait(t, 2)
		// Else the rewind would put them into the log on disk, and the run after would report them
		// again.
		testkit.Eventually(t, "the snapshot is settled", func() bool { return died.informer.Status().Log.Entries == 0 })
		died.list(rewound("102"), "60", "a@40")
		testkit.Want(t, before.wait(t, 3),
			"informer.gap  all/pods/gap/102/60/epoch/1 inferred",
			"resource.updated a ua/40/epoch/1 inferred",
			"informer.synced  all/pods/synced/60/epoch/1")

		// Nothing of that was committed. The position on disk is older than what the run before had
		// seen.
		out := newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(rewound("100"), "60", "a@40")
		testkit.Want(t, out.wait(t, 3),
			"informer.gap  all/pods/gap/100/60/epoch/1 inferred",
			"resource.updated a ua/40/epoch/1 inferred",
			"informer.synced  all/pods/synced/60/epoch/1")
		r.update("a", "100")
		out.wait(t, 1)
		r.list(rewound("100"), "60", "a@40")
		testkit.Want(t, out.wait(t, 3),
			"informer.gap  all/pods/gap/100/60/epoch/2 inferred",
			"resource.updated a ua/40/epoch/2 inferred",
			"informer.synced  all/pods/synced/60/epoch/2")
		r.stop()
		died.stop()
	})
}

// A rewind that a snapshot finds is reported as a rewind.
func TestRewindFoundBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, before := memory(t), newOutbox()
		died := newRig(t, db, []*outbox{before})
		died.list(initial, "100", "a@95")
		before.wait(t, 2)
		testkit.Eventually(t, "the snapshot is settled", func() bool { return died.position() == "100" })
		died.stop()

		out := newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(resource.Relist{Kind: resource.RelistInitialRewound, Reason: resource.ReasonRewound, From: "100", To: "60"}, "60", "a@40")
		out.wait(t, 3)
		if data := string(out.raw[0].Data); !strings.Contains(data, `"reason":"rewound"`) {
			t.Errorf("the gap is reported as %s", data)
		}
		r.stop()
	})
}

func TestRewindDuringAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.list(initial, "100", "a@90")
		out.wait(t, 2)
		relist := resource.Relist{Reason: resource.ReasonUnreadable, From: "100", To: "100"}
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), relist))
		testkit.Want(t, out.wait(t, 1), "informer.gap  all/pods/gap/100/100 inferred")
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "100", To: "60"}, "60", "a@50")
		testkit.Want(t, out.wait(t, 3), "informer.gap  all/pods/gap/100/60/epoch/1 inferred",
			"resource.updated a ua/50/epoch/1 inferred", "informer.synced  all/pods/synced/60/epoch/1")
		r.stop()
	})
}

// A change that waits for an announcement is settled before an epoch begins. A tombstone of before
// would cover another object of the name, in a version that the server gives out again.
func TestRewindBehindAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, fsync := slowDisk(t)
		out := newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.do("list 100 a@95")
		time.Sleep(time.Second)
		out.taken()
		fsync.Store(int64(200 * time.Millisecond))
		r.do("add x 101", "delete x 102")
		time.Sleep(20 * time.Millisecond)
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "102", To: "60"}, "60", "a@40")
		testkit.Want(t, out.wait(t, 5),
			"resource.added x ux/101",
			"resource.deleted x ux/deleted",
			"informer.gap  all/pods/gap/102/60/epoch/1 inferred",
			"resource.updated a ua/40/epoch/1 inferred",
			"informer.synced  all/pods/synced/60/epoch/1")
		r.do("add x#2 70", "update x#2 71")
		testkit.Want(t, out.wait(t, 2),
			"resource.added x ux2/70/epoch/1", "resource.updated x ux2/71/epoch/1")
		fsync.Store(0)
		r.stop()
	})
}

// An informer that is ended while the log has no room loses what it has decided. What the run
// before has sent of that is not known again, whatever bookmark was read: a list after a rewind
// reports everything.
func TestRewindAfterAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "90", "a@40", "b@50")
		out.wait(t, 3)
		r.stop()

		out.setHold(true)
		r = newRig(t, db, []*outbox{out})
		r.do("update b 102")
		out.wait(t, 1)
		r.crash()

		r = newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) {
			c.Unclean, c.ChangeLog.MemoryBytes, c.ChangeLog.SpoolBytes = true, 64<<10, -1
		})
		r.grow("a", "101", 100<<10)
		out.wait(t, 1)
		testkit.OK(t, r.fifo.FIFO.Update(t.Context(), pod(t, "b", "102")))
		r.bookmark("103")
		synctest.Wait()
		r.crash()
		isClean := r.informer.IsClean()

		out = newOutbox()
		r = newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) { c.Unclean = !isClean })
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "90", To: "60"}, "60", "a@40", "b@50")
		testkit.Want(t, out.wait(t, 4),
			"informer.gap  all/pods/gap/90/60/epoch/1 inferred",
			"resource.updated a ua/40/epoch/1 inferred",
			"resource.updated b ub/50/epoch/1 inferred",
			"informer.synced  all/pods/synced/60/epoch/1")
		r.stop()
	})
}
