package bridge_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// byPath sends requests for widgets to one server and all others to another.
type byPath struct{ widgets, others http.RoundTripper }

func (p byPath) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/apis/example.com/") {
		return p.widgets.RoundTrip(req)
	}
	return p.others.RoundTrip(req)
}

// A forbidden resource is not ready, and stops no other.
func TestForbiddenResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		other := testkit.NewServer(t, widgets)
		r.cfg.Client.HTTP = &http.Client{Transport: byPath{other.HTTP().Transport, r.HTTP().Transport}}
		r.cfg.Units = append(r.cfg.Units, informer.Config{Informer: "all", Type: widgets, Sinks: r.cfg.Units[0].Sinks})
		r.Faults.Refuse(testkit.Any, -1, http.StatusForbidden, metav1.StatusReasonForbidden)
		r.start()
		other.Create("shop/w", nil)
		r.Create("shop/p", nil)
		r.settle()
		expect(t, b, "synced", "added w")
		reasons := r.Ready()
		if len(reasons) != 1 || reasons[0].Component != "informer all/pods" || !strings.Contains(reasons[0].Message, "Forbidden") {
			t.Errorf("Ready: %v", reasons)
		}
		r.Faults.Heal() // the role was bound
		time.Sleep(5 * time.Minute)
		expect(t, b, "synced", "added p")
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("Ready: %v", reasons)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// Two units do not share a state.
func TestUnitStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		r.cfg.Units = append(r.cfg.Units, r.cfg.Units[0])
		db, err := store.Open(statedb.Options{})
		testkit.OK(t, err)
		defer func() { testkit.OK(t, db.Close()) }()
		r.cfg.DB = db
		if _, err := bridge.New(r.cfg); err == nil || !strings.Contains(err.Error(), "all/pods") {
			t.Errorf("two units of one name: %v", err)
		}
	})
}

// Each listener gets its resync.
func TestListenerResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := []*testkit.Broker{calmBroker(t, "often"), calmBroker(t, "seldom"), calmBroker(t, "never")}
		r := newRig(t, brokers...)
		r.cfg.Units[0].Sinks[0].Resync, r.cfg.Units[0].Sinks[1].Resync = time.Minute, 90*time.Second
		r.Create("shop/a", nil)
		r.Create("shop/b", nil)
		r.start()
		for _, b := range brokers {
			expect(t, b, "added a", "added b", "synced")
		}
		for _, step := range []struct {
			after time.Duration
			due   string
		}{{60 * time.Second, "often"}, {30 * time.Second, "seldom"}, {30 * time.Second, "often"}, {time.Minute, "often seldom"}} {
			time.Sleep(step.after)
			for _, b := range brokers {
				if strings.Contains(step.due, b.Name) {
					expect(t, b, "synced a", "synced b")
				} else {
					expect(t, b)
				}
			}
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// A snapshot is taken when the mode asks for it.
func TestSnapshotModes(t *testing.T) {
	for mode, want := range map[informer.Snapshot][2][]string{
		informer.SnapshotInitial: {{"added a", "synced"}, {"updated a"}},
		informer.SnapshotNever:   {{}, {"added a"}}, // it was not known before
		informer.SnapshotAlways:  {{"added a", "synced"}, {"gap inferred", "updated a", "synced"}},
	} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t, b)
				r.cfg.Units[0].Snapshot = mode
				r.Create("shop/a", nil)
				r.start()
				expect(t, b, want[0]...)
				_, err := r.end()
				testkit.OK(t, err)
				r.Update("shop/a", nil)
				r.start()
				expect(t, b, want[1]...)
				_, err = r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// Another selection is a gap.
func TestAnotherSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.Create("shop/a", nil)
		r.Create("shop/b", nil)
		r.start()
		_, err := r.end()
		testkit.OK(t, err)
		expect(t, b, "added a", "added b", "synced")
		r.Delete("shop/b")
		r.cfg.Units[0].FieldSelector = "metadata.name!=a"
		r.start()
		expect(t, b, "gap inferred", "deleted a inferred", "deleted b inferred", "synced")
		_, err = r.end()
		testkit.OK(t, err)
	})
}
