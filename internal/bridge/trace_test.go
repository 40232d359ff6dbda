package bridge_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Every event carries the context that is made of its source and id, also one that is sent again.
func TestEventTraceparent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lake := calmBroker(t, "lake")
		r := newRig(t, lake)
		r.cfg.Trace = func(informer, sink string) func(source, id string) string {
			return func(source, id string) string { return informer + " " + sink + " " + source + " " + id }
		}
		r.Create("shop/a", nil)
		r.start()
		lake.Set(testkit.Hung) // what it takes now is sent again
		r.Update("shop/a", nil)
		r.settle()
		lake.Set(testkit.Healthy)
		r.settle()
		_, err := r.end()
		testkit.OK(t, err)
		records := lake.Records()
		for _, rec := range records {
			if want := "all lake /clusters/test " + rec.ID; rec.TraceParent != want {
				t.Errorf("%s has %q, want %q", rec.Type, rec.TraceParent, want)
			}
		}
		if len(records) < 3 {
			t.Errorf("%d events", len(records))
		}
	})
}
