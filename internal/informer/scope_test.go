package informer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A namespace has not left by a list that infers no deletes.
// A run after a crash has to report it: the list did not.
func TestNamespaceInPartialList(t *testing.T) {
	for name, end := range map[string]struct {
		of    resource.Identity
		state resource.NamespaceState
	}{
		"with an item of which nobody knows which object it is": {resource.Identity{}, resource.NamespaceLeaving},
		"but by another": {resource.Identity{Key: "lab/x"}, resource.NamespaceOut},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out}, func(c *informer.StagesConfig) { c.Namespaces, c.Selective = true, true })
				all := resource.Relist{Kind: resource.RelistInitial, Namespaces: map[string]resource.Version{"shop": "1"}}
				r.list(all, "10", "a@4")
				out.wait(t, 2)
				none := expired
				none.Namespaces = map[string]resource.Version{}
				testkit.OK(t, r.fifo.BeginReplace(t.Context(), none))
				testkit.OK(t, r.fifo.Skip(t.Context(), end.of))
				testkit.OK(t, r.fifo.EndReplace(t.Context(), "20"))
				r.stop()
				states, err := r.indexer.Meta().Namespaces()
				testkit.OK(t, err)
				if states["shop"].State != end.state {
					t.Errorf("the namespace stands at %v, want %v", states["shop"].State, end.state)
				}
			})
		})
	}
}

// Deletes of a namespace that leaves are settled before it is written that it enters again, also
// those that wait for their announcement. A run after a crash would not send the objects again:
// nothing would say that they have left.
func TestNamespaceBehindAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		selects := func(c *informer.StagesConfig) { c.Namespaces, c.Selective = true, true }
		all := resource.Relist{Kind: resource.RelistInitial, Namespaces: map[string]resource.Version{"shop": "1"}}
		leaves := resource.Relist{Kind: resource.RelistLeaves, Namespace: "shop"}
		enters := resource.Relist{Kind: resource.RelistEnters, Namespace: "shop", Entered: "13", From: "12"}
		db, fsync := slowDisk(t)
		out := newOutbox()
		r := newRig(t, db, []*outbox{out}, selects)
		r.list(all, "10", "x@4")
		out.wait(t, 2)
		testkit.Eventually(t, "the list is settled", func() bool { return r.position() == "10" })
		out.setHold(true)
		fsync.Store(int64(200 * time.Millisecond))
		r.list(leaves, "12")
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), enters))
		testkit.Eventually(t, "the namespace enters", func() bool {
			states, err := r.indexer.Meta().Namespaces()
			testkit.OK(t, err)
			return states["shop"].State == resource.NamespaceEntering
		})
		testkit.Want(t, out.wait(t, 1), "resource.deleted x ux/deleted")
		fsync.Store(0)
		r.crash()

		out = newOutbox()
		r = newRig(t, db, []*outbox{out}, selects)
		r.list(enters, "14", "x@4")
		testkit.Want(t, out.wait(t, 2), "resource.deleted x ux/deleted", "resource.added x ux/4/entered/13")
		r.stop()
	})
}
