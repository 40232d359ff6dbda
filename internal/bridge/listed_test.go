package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/testkit"
)

// The sink goes away with the end of a WatchList, before which an object was deleted, and the
// process dies: the watch continues behind that end, and would not bring the delete again.
func TestWatchListDeleteAndCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.SetFeatures(testkit.Features{NoInitialEnd: true})
		r.Create("shop/a", nil)
		r.Create("shop/b", nil)
		r.cfg.OnSettle = func(_ string, items []*publisher.Item) {
			for _, it := range items {
				if strings.HasSuffix(it.Message.Event.Type, "informer.synced") {
					b.Set(testkit.Unreachable)
				}
			}
		}
		r.start()
		r.Delete("shop/a")
		synctest.Wait()
		r.Streams.InitialEnd()
		r.settle()
		died := r.fs.CrashClone(crashed)
		_, _ = r.end()

		r.cfg.OnSettle = nil
		b.Set(testkit.Healthy)
		r.fs = died
		r.SetFeatures(testkit.Features{})
		r.start()
		r.Update("shop/b", nil)
		r.settle()
		expect(t, b, "added a", "added b", "synced", "deleted a", "updated b")
		_, err := r.end()
		testkit.OK(t, err)
	})
}
