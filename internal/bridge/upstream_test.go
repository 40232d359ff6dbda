package bridge_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Cases of client-go's tests that no other test here has. docs/testdata/upstream_cases.txt has all.

// As TestResetWatch and TestSharedInformerWatchDisruption: what changed while no watch was open
// reaches everyone, from the watch's history or, when that is lost, by a list. Whoever resyncs gets
// everything besides.
func TestChangesWithoutWatch(t *testing.T) {
	for name, expired := range map[string]bool{"and the server has the history": false, "and the history is lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := calmBroker(t, "one"), calmBroker(t, "two")
				r := newRig(t, one, two)
				for i := range r.cfg.Units[0].Sinks {
					r.cfg.Units[0].Sinks[i].Resync = 10 * time.Minute
				}
				r.Create("shop/a", nil)
				r.Create("shop/b", nil)
				r.start()
				for _, b := range []*testkit.Broker{one, two} {
					expect(t, b, "added a", "added b", "synced")
				}
				r.Faults.Refuse(testkit.Watches, -1, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				r.Streams.Cut()
				synctest.Wait()
				r.Create("shop/c", nil)
				r.Update("shop/b", nil)
				if expired {
					r.Expire()
				}
				time.Sleep(time.Minute)
				for _, b := range []*testkit.Broker{one, two} {
					expect(t, b) // nobody could know
				}
				r.Faults.Heal()
				time.Sleep(3 * time.Minute)
				want := []string{"updated b", "added c"}
				if expired {
					want = []string{"gap inferred", "updated b inferred", "added c inferred", "synced"}
				}
				for _, b := range []*testkit.Broker{one, two} {
					expect(t, b, want...)
				}
				time.Sleep(6*time.Minute + 30*time.Second)
				for _, b := range []*testkit.Broker{one, two} {
					expect(t, b, "synced a", "synced b", "synced c")
				}
				_, err := r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// As TestInformerWatcherDeletedFinalStateUnknown: what a list no longer holds is deleted, with the
// last state that was known.
func TestUnseenDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.Create("shop/a", func(o map[string]any) { o["spec"] = map[string]any{"mark": "first"} })
		r.start()
		expect(t, b, "added a", "synced")
		r.Faults.Refuse(testkit.Watches, 3, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		r.Streams.Cut()
		synctest.Wait()
		r.Update("shop/a", func(o map[string]any) { o["spec"] = map[string]any{"mark": "unseen"} })
		r.Delete("shop/a")
		r.Skip(1)
		r.Expire()
		time.Sleep(time.Minute)
		expect(t, b, "gap inferred", "deleted a inferred", "synced")
		records := b.Records()
		last := string(records[len(records)-2].Data)
		if !strings.Contains(last, `"mark":"first"`) {
			t.Errorf("the delete has %s", last)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// As TestSharedInformerErrorHandling: an error of the first list is reported as it was said.
func TestFirstListError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		status := testkit.NewStatus(http.StatusForbidden, metav1.StatusReasonForbidden)
		status.Message = "Access Denied"
		r.Faults.RefuseWith(testkit.Any, -1, status)
		r.start()
		reasons := r.Ready()
		if len(reasons) != 1 || !strings.Contains(reasons[0].Message, "Access Denied") || !strings.Contains(r.log.String(), "Access Denied") {
			t.Errorf("Ready: %v", reasons)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}
