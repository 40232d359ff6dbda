package bridge_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// newest is a rig with a sink that is sent the newest states only.
func newest(t *testing.T) (*rig, *testkit.Broker) {
	b := calmBroker(t, "sink")
	r := newRig(t, b)
	r.cfg.Units[0].Sinks = []informer.Binding{{Sink: "sink", Latest: true}}
	r.start()
	return r, b
}

func TestLatestMeansLatest(t *testing.T) {
	t.Run("a sink that was paused is sent the newest states only", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, b := newest(t)
			r.Create("shop/a", nil)
			time.Sleep(time.Second)
			expect(t, b, "synced", "added a")
			testkit.OK(t, r.PauseSink(t.Context(), "sink", "ada"))
			for range 3 {
				r.Update("shop/a", nil)
				time.Sleep(time.Second)
			}
			r.Create("shop/c", nil)
			time.Sleep(time.Second)
			r.Update("shop/c", nil)
			time.Sleep(time.Second)
			expect(t, b)
			testkit.OK(t, r.ResumeSink(t.Context(), "sink"))
			time.Sleep(time.Second)
			expect(t, b, "updated a", "added c")
			_, err := r.end()
			testkit.OK(t, err)
		})
	})
	t.Run("a broker that was unavailable gets one older event, with which it was tried", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, b := newest(t)
			r.Create("shop/a", nil)
			r.Create("shop/b", nil)
			time.Sleep(time.Second)
			expect(t, b, "synced", "added a", "added b")
			b.Set(testkit.Unreachable)
			r.Update("shop/a", nil)
			time.Sleep(time.Minute)
			for range 3 {
				r.Update("shop/b", nil)
				time.Sleep(time.Second)
			}
			r.Update("shop/a", nil)
			time.Sleep(time.Second)
			b.Set(testkit.Healthy)
			time.Sleep(time.Minute)
			expect(t, b, "updated a", "updated b", "updated a")
			_, err := r.end()
			testkit.OK(t, err)
		})
	})
}
