package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// The last settled state of an object is shown.
// What is shown of an object is what is settled, not what is in flight.
func TestSettledObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lake := calmBroker(t, "lake")
		r := newRig(t, lake)
		registry := prometheus.NewRegistry()
		r.cfg.Registerer = registry
		objects := func(want int) {
			t.Helper()
			if units := r.Status().Informers; units[0].Objects == nil || *units[0].Objects != want {
				t.Errorf("%v objects, want %d", units[0].Objects, want)
			}
			if got := testkit.Metric(t, registry, "bridge_informer_objects"); got != float64(want) {
				t.Errorf("the metric is %v, want %d", got, want)
			}
		}
		var shown []string
		r.cfg.OnSettle = func(sink string, settled []*publisher.Item) {
			for _, it := range settled {
				shown = append(shown, sink+" "+it.Message.Event.Name)
			}
		}
		r.Create("shop/a", nil)
		r.start()
		states, err := r.Object("pods", "shop", "a")
		testkit.OK(t, err)
		if len(states) != 1 || states[0].Informer != "all" || states[0].Version == "" || !strings.Contains(string(states[0].Object), `"name":"a"`) {
			t.Errorf("got %+v", states)
		}
		objects(1)

		settled := states[0].Version
		lake.Set(testkit.Unreachable)
		r.Update("shop/a", nil)
		r.settle()
		if states, err = r.Object("pods", "shop", "a"); err != nil || states[0].Version != settled {
			t.Errorf("%v: what no sink has is shown as settled: %+v", err, states)
		}
		lake.Set(testkit.Healthy)
		time.Sleep(time.Minute)
		r.Delete("shop/a")
		r.settle()
		if states, err = r.Object("pods", "shop", "a"); err != nil || len(states) > 0 && !states[0].Deleted {
			t.Errorf("%v: what is deleted is shown as there: %+v", err, states)
		}
		objects(0)

		if states, err = r.Object("pods", "shop", "never"); err != nil || len(states) != 0 {
			t.Errorf("got %v, %v", states, err)
		}
		if _, err = r.Object("secrets", "shop", "a"); !errors.Is(err, bridge.ErrNotWatched) || err.Error() != `no informer watches "secrets" in namespace "shop"` {
			t.Errorf("got %v", err)
		}
		_, err = r.end()
		testkit.OK(t, err)
		if got := strings.Join(shown, ", "); !strings.HasPrefix(got, "lake a, lake ") {
			t.Errorf("shown: %s", got)
		}
	})
}

// An object of an earlier version is shown as such.
// In a flood of updates the state knows newer versions than it has objects of; that is reported.
func TestStaleObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "lake"))
		r.bodies = 1
		r.start()
		keys := []resource.Key{"shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "shop/f"}
		for n, key := range keys {
			r.Create(key, func(obj map[string]any) { // only real uids are remembered
				obj["metadata"].(map[string]any)["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
			})
		}
		r.settle()
		for _, key := range keys {
			r.Update(key, nil)
		}
		r.settle()
		exact, earlier := 0, 0
		for _, key := range keys {
			namespace, name := key.Split()
			states, err := r.Object("pods", namespace, name)
			testkit.OK(t, err)
			switch s := states[0]; {
			case s.Earlier == "":
				exact++
			case strings.Contains(string(s.Object), `"resourceVersion":"`+s.Earlier+`"`) && s.Earlier != s.Version:
				earlier++
			default:
				t.Errorf("version %s, earlier %s: %s", s.Version, s.Earlier, s.Object)
			}
		}
		if exact == 0 || earlier == 0 {
			t.Errorf("%d are exact and %d are not, want both", exact, earlier)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}
