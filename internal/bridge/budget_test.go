package bridge_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Many resources whose sink is unavailable hold no more together than the budget has for them, and
// nothing is lost by that.
func TestQueueBudget(t *testing.T) {
	const units, own, limit = 6, 1 << 20, 1 << 20
	for name, budget := range map[string]int64{"with a budget": limit, "without": 0} {
		t.Run(name, func(t *testing.T) {
			if budget == 0 && testing.Short() {
				t.Skip("it only shows that the other one shows something")
			}
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t)
				r.cfg.QueueBytes = budget
				r.cfg.Units = nil
				for i := range units {
					r.cfg.Units = append(r.cfg.Units,
						informer.Config{Informer: fmt.Sprint("i", i), Type: pods, Queue: informer.Queue{Memory: own}})
				}
				r.addSink(b.Name, b.Connect(0))
				var want []string
				for i := range 7 {
					r.Create(resource.MakeKey("shop", fmt.Sprint("p", i)), nil)
				}
				for range units {
					for i := range 7 {
						want = append(want, fmt.Sprint("added p", i))
					}
					want = append(want, "synced")
				}
				r.start()
				expect(t, b, want...)

				b.Set(testkit.Unreachable)
				lines := r.churnNoise(0, 200)
				most := 0
				for range 60 {
					held := 0
					for _, s := range r.Status().Informers {
						held += s.LogBytes + s.QueuedBytes
					}
					most = max(most, held)
					time.Sleep(500 * time.Millisecond)
				}
				switch isBounded := most < 2*limit; {
				case budget > 0 && !isBounded:
					t.Errorf("the queues held %d bytes of %d", most, limit)
				case budget == 0 && isBounded:
					t.Errorf("the queues held %d bytes: the test shows nothing", most)
				}
				b.Set(testkit.Healthy)
				want = nil
				for range units {
					want = append(want, lines...)
				}
				time.Sleep(5 * time.Minute)
				expect(t, b, want...)
				_, err := r.end()
				testkit.OK(t, err)
			})
		})
	}
}
