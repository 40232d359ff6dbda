package bridge_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

func TestOnSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		calls := 0
		r.cfg.OnSynced = func() { calls++ }
		r.Faults.Refuse(testkit.Any, 1000, http.StatusForbidden, "Forbidden")
		r.start()
		if calls != 0 {
			t.Errorf("called %d times before the first list", calls)
		}
		r.Faults.Heal()
		time.Sleep(2 * time.Minute) // the pause before the next attempt
		if r.settle(); calls != 1 {
			t.Errorf("called %d times behind it, want once", calls)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}
