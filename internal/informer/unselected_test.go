package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

func (r *rig) unselected(name, version string, gone bool) {
	testkit.OK(r.t, r.fifo.Unselected(r.t.Context(), pod(r.t, name, version), gone))
}

func selects(c *informer.StagesConfig) { c.Selective, c.Enterable = true, true }

// Only an object that was selected leaves the selection.
func TestLeavingObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out}, selects)
		r.list(initial, "10", "a@4", "b@7", "c@8")
		out.wait(t, 4)
		r.unselected("x", "11", false)
		r.unselected("x", "12", true)
		r.unselected("a", "3", false) // a replay of before
		r.unselected("a", "13", false)
		r.unselected("a", "14", true)
		r.unselected("b", "15", true)
		r.unselected("c#2", "16", false) // another pod of that name
		testkit.Want(t, out.wait(t, 3), "resource.deleted a ua/13/left",
			"resource.deleted b ub/deleted", "resource.deleted c uc/deleted inferred")
		r.update("a", "17")
		testkit.Want(t, out.wait(t, 1), "resource.added a ua/17")
		r.unselected("x", "18", false)
		r.unselected("x", "19", false)
		r.stop()
		position, err := r.indexer.Meta().Position()
		testkit.OK(t, err)
		if position.Version != "18" {
			t.Errorf("the watermark is %s; what is reported to nobody moves it too", position.Version)
		}
	})
}

// A list that is older than the watch makes no object leave.
// A list may be older than what a watch has reported.
func TestLeavingInOldList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out}, selects)
		r.list(initial, "10", "a@4", "b@7")
		out.wait(t, 3)
		r.update("a", "30")
		out.wait(t, 1)
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
		r.unselected("a", "25", false)
		r.unselected("b", "7", false) // in the version that is known: what is selected has changed
		testkit.OK(t, r.fifo.EndReplace(t.Context(), "26"))
		testkit.Want(t, out.wait(t, 3),
			"informer.gap  all/pods/gap/3/20 inferred",
			"resource.deleted b ub/7/left inferred",
			"informer.synced  all/pods/synced/26")
		r.stop()
	})
}
