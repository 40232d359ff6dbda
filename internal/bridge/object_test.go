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
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
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

// The indexes have the newest states, settled or not, and are built at a start that finds none.
func TestIndexedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lake := calmBroker(t, "lake")
		r := newRig(t, lake)
		of := func(owner string) func(map[string]any) {
			return func(obj map[string]any) {
				obj["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
				obj["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner}}
			}
		}
		has := func(index, value string, names ...string) {
			t.Helper()
			found, err := r.Indexed(index, value)
			testkit.OK(t, err)
			var got []string
			for _, o := range found.Objects {
				got = append(got, o.Name)
				if o.Ready != "True" || o.Kind != "Pod" || o.Resource != "pods" || o.UID == "" || o.Version == "" || o.Informer != "all" {
					t.Errorf("got %+v", o)
				}
			}
			testkit.Want(t, got, names...)
			if len(found.Incomplete) > 0 {
				t.Errorf("incomplete: %v", found.Incomplete)
			}
		}
		values := func(want ...string) {
			t.Helper()
			found, err := r.Indexed("owner", "")
			testkit.OK(t, err)
			testkit.Want(t, found.Values, want...)
		}
		r.Create("shop/a", of("o1"))
		r.Create("shop/b", of("o1"))
		r.start()
		r.settle()
		has("owner", "o1", "a", "b")
		values("o1")
		lake.Set(testkit.Unreachable)
		r.Update("shop/b", of("o2"))
		r.settle()
		has("owner", "o1", "a")
		has("owner", "o2", "b")
		values("o1", "o2")
		lake.Set(testkit.Healthy)
		time.Sleep(time.Minute)
		has("owner", "o2", "b")
		if _, err := r.Indexed("other", "x"); !errors.Is(err, store.ErrNoIndex) {
			t.Errorf("another index: %v", err)
		}
		_, err := r.end()
		testkit.OK(t, err)

		db, err := store.Open(statedb.Options{Dir: "state", FS: r.fs})
		testkit.OK(t, err)
		unit := &r.cfg.Units[0]
		_, err = db.Indexer(store.IndexerConfig{Name: unit.Name(), Scope: unit.Scope(), Type: unit.Type}) // removes them
		testkit.OK(t, err)
		testkit.OK(t, db.Close())
		r.start()
		r.settle()
		has("owner", "o2", "b")
		has("owner", "o2", "b")
		_, err = r.end()
		testkit.OK(t, err)
	})
}
