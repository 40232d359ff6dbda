package bridge_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/publisher"
)

// What is shown of an object is what is settled, not what is on its way.
func TestAnObjectsLastSettledStateIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lake := calmBroker("lake")
		r := newRig(t, lake)
		var shown []string
		r.cfg.OnSettle = func(sink string, settled []*publisher.Item) {
			for _, it := range settled {
				shown = append(shown, sink+" "+it.Message.Event.Name)
			}
		}
		r.Create("shop/a", nil)
		r.start()
		states, err := r.Object("pods", "shop", "a")
		ok(t, err)
		if len(states) != 1 || states[0].Informer != "all" || states[0].Version == "" || !strings.Contains(string(states[0].Object), `"name":"a"`) {
			t.Errorf("got %+v", states)
		}
		if units := r.Status().Informers; units[0].Objects == nil || *units[0].Objects != 1 {
			t.Errorf("%d objects", units[0].Objects)
		}

		settled := states[0].Version
		lake.set(away)
		r.Update("shop/a", nil)
		r.settle()
		if states, err = r.Object("pods", "shop", "a"); err != nil || states[0].Version != settled {
			t.Errorf("%v: what no sink has is shown as settled: %+v", err, states)
		}
		lake.set(calm)
		time.Sleep(time.Minute)
		r.Delete("shop/a")
		r.settle()
		if states, err = r.Object("pods", "shop", "a"); err != nil || len(states) > 0 && !states[0].Deleted {
			t.Errorf("%v: what is deleted is shown as there: %+v", err, states)
		}
		if units := r.Status().Informers; *units[0].Objects != 0 {
			t.Errorf("%d objects", *units[0].Objects)
		}

		if states, err = r.Object("pods", "shop", "never"); err != nil || len(states) != 0 {
			t.Errorf("got %v, %v", states, err)
		}
		if _, err = r.Object("secrets", "shop", "a"); !errors.Is(err, bridge.ErrNotWatched) || err.Error() != `no informer watches "secrets" in namespace "shop"` {
			t.Errorf("got %v", err)
		}
		_, err = r.end()
		ok(t, err)
		if got := strings.Join(shown, ", "); !strings.HasPrefix(got, "lake a, lake ") {
			t.Errorf("shown: %s", got)
		}
	})
}
