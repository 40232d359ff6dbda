package informer_test

import (
	"strings"
	"testing"
	"testing/synctest"

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
		// Else the rewind would put them into the log on disk, and the run after would tell them
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
			t.Errorf("the gap is told as %s", data)
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
