package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A namespace has not left by a list that infers no deletes.
// A run after a crash has to tell it: the list did not.
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
				r := newRig(t, memory(t), []*outbox{out}, func(c *informer.Config) { c.Namespaces, c.Selective = true, true })
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
