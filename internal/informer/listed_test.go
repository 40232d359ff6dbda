package informer_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/testkit"
)

// settleOf settles what is held of an object, and continues holding the rest.
func (o *outbox) settleOf(name string) {
	o.mu.Lock()
	var done []*publisher.Item
	o.held = slices.DeleteFunc(o.held, func(it *publisher.Item) bool {
		goes := it.Message.Event.Name == name
		if goes {
			done = append(done, it)
		}
		return goes
	})
	o.mu.Unlock()
	settle(done)
}

// A delete before the end of a list is part of the list.
func TestDeleteBeforeListEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.list(initial, "50", "a@40", "b@41")
		out.wait(t, 3)
		testkit.Eventually(t, "the first list is settled", func() bool { return r.position() == "50" })
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
		r.replace("a", "98")
		out.wait(t, 2)
		out.setHold(true)
		r.delete("a", "102")
		testkit.OK(t, r.fifo.EndReplace(t.Context(), "104"))
		testkit.Want(t, out.wait(t, 2), "resource.deleted a ua/deleted", "resource.deleted b ub/deleted inferred")
		if at := r.position(); at != "50" {
			t.Errorf("the watermark is %s before anything of the list's end is settled", at)
		}
		out.settleOf("a")
		if at := r.position(); at != "50" {
			t.Errorf("the watermark is %s: after a crash b would not be missed", at)
		}
		out.release()
		testkit.Eventually(t, "the list is settled", func() bool { return r.position() == "104" })
		r.stop()
	})
}

// What was not selected and died before the end of a list is not inferred.
// It was reported, though within a list.
func TestUnselectedDeleteInList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out}, selects)
		r.list(initial, "50", "a@40", "b@41")
		out.wait(t, 3)
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
		r.unselected("a", "60", true)
		r.unselected("b", "61", false)
		testkit.OK(t, r.fifo.EndReplace(t.Context(), "70"))
		got := out.wait(t, 4)
		testkit.Want(t, got[1:3], "resource.deleted a ua/deleted", "resource.deleted b ub/61/left inferred")
		r.stop()
	})
}

// A delete with the version of the last state is reported.
// An aggregated API server may give a delete the version of the last state.
func TestDeleteOfSameVersion(t *testing.T) {
	for name, item := range map[string]func(r *rig){
		"that a watch reported": func(r *rig) { r.add("a", "11") },
		"of a list":             func(r *rig) { r.list(initial, "11", "a@11") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out})
				item(r)
				r.delete("a", "11")
				r.delete("a", "11") // a replay
				r.add("a", "11")    // and one of before
				r.bookmark("12")
				r.stop()
				lines := out.wait(t, 2)
				if n := len(lines); lines[n-1] != "resource.deleted a ua/deleted" || lines[0] == lines[n-1] {
					t.Errorf("got %q", lines)
				}
				if rec, found, err := r.indexer.Get("shop/a"); found && !rec.Deleted || err != nil {
					t.Errorf("a is %+v, %v", rec, err)
				}
			})
		})
	}
}
