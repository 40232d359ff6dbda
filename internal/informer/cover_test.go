package informer_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// cover of the first event with an id that waits.
func (o *outbox) cover(t *testing.T, id string) publisher.Cover {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, it := range o.held {
		if it.Message.Event.ID == id {
			return it.Cover
		}
	}
	t.Fatalf("%s does not wait", id)
	return publisher.Cover{}
}

// An item that can't be understood may say that another object has the name, and not in which
// version. What it implies bears the version of the object that is gone, which another replica may
// have delivered long ago.
func TestADeleteThatAnItemWithoutVersionToldIsCoveredByItsList(t *testing.T) {
	for version, want := range map[resource.Version]publisher.Cover{
		"":   {Version: "4", OfList: true},
		"15": {Version: "15"},
	} {
		t.Run("version "+string(version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, out := memory(t), newOutbox()
				died := newRig(t, db, []*outbox{out}, spooling)
				died.list(initial, "10", "a@4")
				out.wait(t, 2)
				ok(t, died.fifo.BeginReplace(t.Context(), expired))
				out.wait(t, 1)
				out.setHold(true)
				ok(t, died.fifo.Skip(t.Context(), resource.Identity{Key: "shop/a", UID: "another", Version: version}))
				ok(t, died.fifo.EndReplace(t.Context(), "20"))
				out.wait(t, 1) // what follows, the end of the list, waits for it
				if got := out.cover(t, "ua/deleted"); got != want {
					t.Errorf("in memory %+v, want %+v", got, want)
				}
				eventually(t, "it is on disk", func() bool { return died.position() == "20" })

				again := newOutbox()
				again.setHold(true)
				r := newRig(t, db, []*outbox{again})
				again.wait(t, 1)
				if got := again.cover(t, "ua/deleted"); got != want {
					t.Errorf("from disk %+v, want %+v", got, want)
				}
				again.release()
				r.stop()
				out.release()
				died.stop()
			})
		})
	}
}
