package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// reload is a rig with two informers, "one" of pods and "two" of widgets, that send to the sinks a
// and b.
type reload struct {
	*rig
	widgets *testkit.Server
	a, b    *testkit.Broker
	one     informer.Config
	two     informer.Config
}

func newReload(t *testing.T) *reload {
	r := &reload{a: calmBroker(t, "a"), b: calmBroker(t, "b")}
	r.rig = newRig(t, r.a, r.b)
	r.widgets = testkit.NewServer(t, widgets)
	r.cfg.Client.HTTP = &http.Client{Transport: byPath{r.widgets.HTTP().Transport, r.HTTP().Transport}}
	r.cfg.Registerer = prometheus.NewRegistry()
	r.one = informer.Config{Informer: "one", Type: pods, Sinks: r.cfg.Units[0].Sinks}
	r.two = informer.Config{Informer: "two", Type: widgets, Sinks: r.cfg.Units[0].Sinks}
	r.cfg.Units = []informer.Config{r.one, r.two}
	return r
}

// keep are the sinks as they run.
func keep(names ...string) (list []bridge.SinkConfig) {
	for _, name := range names {
		list = append(list, bridge.SinkConfig{Name: name})
	}
	return list
}

func (r *reload) change(c bridge.Change) bridge.Changes {
	r.t.Helper()
	done, err := r.Reconfigure(r.t.Context(), &c)
	testkit.OK(r.t, err)
	r.settle()
	return done
}

func (r *reload) finish() {
	r.t.Helper()
	_, err := r.end()
	testkit.OK(r.t, err)
}

// A reload does not touch an informer that has not changed.
func TestReloadUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		expect(t, r.a, "synced", "synced")
		before := len(r.asked())
		changed := r.two
		changed.Sinks = slices.Clone(changed.Sinks)
		changed.Sinks[0].Payload = event.PayloadMetadata
		r.change(bridge.Change{Informers: []string{"one", "two"}, Changed: []string{"two"}, Units: []informer.Config{r.one, changed}, Sinks: keep("a", "b")})
		r.change(bridge.Change{Informers: []string{"one"}, Units: []informer.Config{r.one}, Sinks: keep("a", "b")})
		r.change(bridge.Change{Informers: []string{"one", "two"}, Changed: []string{"two"}, Units: []informer.Config{r.one, r.two}, Sinks: keep("a", "b")})
		r.Create("shop/p", nil)
		r.widgets.Create("shop/w", nil)
		r.settle()
		expect(t, r.a, "added p", "added w")
		if n := len(r.asked()) - before; n > 0 || r.Streams.Count() != 1 {
			t.Errorf("%d requests, %d watches of the other informer", n, r.Streams.Count())
		}
		if lists := r.widgets.Requests(testkit.Lists); len(lists) > 0 {
			t.Errorf("%d lists of the one that changed", len(lists))
		}
		r.finish()
	})
}

// An informer that was removed continues from its position when it is added again.
func TestReloadRemovedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.widgets.Create("shop/w", nil)
		r.start()
		expect(t, r.b, "added w", "synced", "synced")
		done := r.change(bridge.Change{Informers: []string{"one"}, Units: []informer.Config{r.one}, Sinks: keep("a", "b")})
		if done.UnitsStopped != 1 || r.widgets.Streams.Count() != 0 || len(r.Status().Informers) != 1 {
			t.Errorf("%+v, %d watches, %+v", done, r.widgets.Streams.Count(), r.Status().Informers)
		}
		r.widgets.Update("shop/w", nil)
		r.settle()
		expect(t, r.b)
		done = r.change(bridge.Change{Informers: []string{"one", "two"}, Changed: []string{"two"}, Units: []informer.Config{r.one, r.two}, Sinks: keep("a", "b")})
		expect(t, r.b, "updated w")
		if done.UnitsStarted != 1 {
			t.Errorf("%+v", done)
		}
		r.finish()
	})
}

// Another selector is a gap, as after a restart.
func TestReloadSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.Create("shop/p", nil)
		r.Create("shop/q", nil)
		r.start()
		expect(t, r.a, "added p", "added q", "synced", "synced")
		narrow := r.one
		narrow.FieldSelector = "metadata.name!=q"
		r.change(bridge.Change{Informers: []string{"one", "two"}, Changed: []string{"one"}, Units: []informer.Config{narrow, r.two}, Sinks: keep("a", "b")})
		expect(t, r.a, "gap inferred", "deleted q inferred", "synced")
		r.finish()
	})
}

// A namespace selector that is removed again does not keep the bridge from being ready.
func TestReloadNamespaceSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t) // whose API server gives no namespaces
		r.start()
		selecting := r.two
		selecting.NamespaceSelector = "env=prod"
		both := bridge.Change{Informers: []string{"one", "two"}, Changed: []string{"two"}, Units: []informer.Config{r.one, selecting}, Sinks: keep("a", "b")}
		r.change(both)
		if reasons := fmt.Sprint(r.Ready()); !strings.Contains(reasons, "namespaces: ") {
			t.Errorf("not reported: %s", reasons)
		}
		both.Units = []informer.Config{r.one, r.two}
		r.change(both)
		time.Sleep(2 * time.Second) // for the watch to be in sync
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("reported although no informer selects it any more: %v", reasons)
		}
		r.finish()
	})
}

// A sink is added to an informer, removed from it, and replaced.
func TestReloadSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		r.Create("shop/p", nil)
		r.settle()
		c := calmBroker(t, "c")
		more := r.one
		more.Sinks = []informer.Binding{{Sink: "a"}, {Sink: "c"}}
		both := []string{"one", "two"}
		other := r.two
		other.Sinks = more.Sinks
		done := r.change(bridge.Change{
			Informers: both, Changed: both, Units: []informer.Config{more, other},
			Sinks: append(keep("a"), bridge.SinkConfig{Name: "c", Sink: c.Connect(0)}),
		})
		if done.SinksStarted != 1 || done.SinksStopped != 1 || done.SinksReplaced != 0 {
			t.Errorf("%+v", done)
		}
		r.Update("shop/p", nil)
		r.settle()
		expect(t, c, "updated p") // from now on
		expect(t, r.a, "synced", "synced", "added p", "updated p")
		expect(t, r.b, "synced", "synced", "added p")

		// Its address has changed: what is sent goes to the new one, and what was sent not again.
		moved := calmBroker(t, "a")
		moved.Seed = 2
		done = r.change(bridge.Change{
			Informers: both, Units: []informer.Config{more, other},
			Sinks: append(keep("c"), bridge.SinkConfig{Name: "a", Sink: moved.Connect(0)}),
		})
		if done.SinksReplaced != 1 || done.UnitsRestarted != 2 {
			t.Errorf("%+v", done)
		}
		r.Delete("shop/p")
		r.settle()
		expect(t, moved, "deleted p")
		expect(t, c, "deleted p")
		expect(t, r.a)
		var names []string
		for _, s := range r.Status().Sinks {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, []string{"c", "a"}) {
			t.Errorf("status has the sinks %v", names)
		}
		r.finish()
	})
}

// Whatever waits for a sink that is unavailable, an informer that sends to it can begin again, and
// reads on; nothing comes twice, or in another order.
func TestReloadInOutage(t *testing.T) {
	for name, replace := range map[string]bool{"that stays": false, "that is replaced": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReload(t)
				r.start()
				expect(t, r.a, "synced", "synced")
				expect(t, r.b, "synced", "synced")
				r.b.Set(testkit.Unreachable)
				want := []string{}
				for i := range 50 {
					r.Create("shop/p", nil)
					want = append(want, "updated p")
					if i%10 == 0 {
						sinks := keep("a", "b")
						if replace {
							sinks[1].Sink = r.b.Connect(0)
						}
						done := r.change(bridge.Change{Informers: []string{"one", "two"}, Changed: []string{"one"}, Units: []informer.Config{r.one, r.two}, Sinks: sinks})
						if done.UnitsRestarted == 0 {
							t.Errorf("%+v", done)
						}
					}
				}
				want[0] = "added p"
				r.settle()
				expect(t, r.a, want...)
				r.b.Set(testkit.Healthy)
				time.Sleep(time.Minute)
				r.settle()
				expect(t, r.b, want...)
				if versions := versionsOf(r.b); !slices.IsSorted(versions) {
					t.Errorf("the order is %v", versions)
				}
				if lists := r.Requests(testkit.Lists); len(lists) > 0 {
					t.Errorf("%d lists", len(lists))
				}
				r.finish()
			})
		})
	}
}

// versionsOf are the versions of objects that a broker has acknowledged, in order; they have
// equally many digits here.
func versionsOf(b *testkit.Broker) (versions []string) {
	for _, rec := range b.Records() {
		if rec.Acked && rec.Name != "" {
			versions = append(versions, rec.Sequence)
		}
	}
	return versions
}

// A sink that can never be opened does not end a running bridge.
func TestReloadUnopenableSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		sink := broken{calmBroker(t, "b").Connect(0)}
		sinks := []bridge.SinkConfig{{Name: "a"}, {Name: "b", Sink: sink}}
		both := []string{"one", "two"}
		units := []informer.Config{r.one, r.two}
		r.change(bridge.Change{Informers: both, Units: units, Sinks: sinks})
		r.Create("shop/p", nil)
		time.Sleep(10 * time.Second)
		r.settle()
		expect(t, r.a, "synced", "synced", "added p")
		if reasons := r.Ready(); len(reasons) != 1 || !strings.Contains(reasons[0].String(), "sink b: wrong password") {
			t.Errorf("Ready: %v", reasons)
		}
		sinks[1].Sink = r.b.Connect(0)
		r.change(bridge.Change{Informers: both, Units: units, Sinks: sinks})
		expect(t, r.b, "synced", "synced", "added p")
		r.finish()
	})
}

// A change that can't be made changes nothing.
func TestReloadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		before := len(r.Requests(testkit.Any))
		nowhere := r.one
		nowhere.Sinks = []informer.Binding{{Sink: "none"}}
		for name, c := range map[string]bridge.Change{
			"a sink that is not there": {Informers: []string{"one"}, Changed: []string{"one"}, Units: []informer.Config{nowhere}, Sinks: keep("a", "b")},
			"a sink that does not run": {Informers: []string{"one"}, Units: []informer.Config{r.one}, Sinks: keep("a", "b", "c")},
			"a unit twice":             {Informers: []string{"one"}, Units: []informer.Config{r.one, r.one}, Sinks: keep("a", "b")},
		} {
			if _, err := r.Reconfigure(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(r.Requests(testkit.Any)) - before; n > 0 || len(r.Status().Informers) != 2 {
			t.Errorf("%d requests, %+v", n, r.Status().Informers)
		}
		r.finish()
	})
}

// A change during a start is made after it, and a change during a stop is not made.
func TestReloadAroundStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		s := &service{diary: &diary{}, after: time.Minute}
		r.cfg.Services = []bridge.Service{s}
		r.start()
		c := bridge.Change{Informers: []string{"one"}, Units: []informer.Config{r.one}, Sinks: keep("a", "b")}
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := r.Reconfigure(impatient, &c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it has started: %v", err)
		}
		r.change(c)
		if n := len(r.Status().Informers); n != 1 {
			t.Errorf("%d units", n)
		}
		r.a.Set(testkit.Hung)
		r.Create("shop/p", nil)
		r.settle()
		r.stop(errStop)
		synctest.Wait()
		if _, err := r.Reconfigure(t.Context(), &c); !errors.Is(err, bridge.ErrStopping) {
			t.Errorf("while it stops: %v", err)
		}
		r.a.Set(testkit.Healthy)
		testkit.OK(t, <-r.done)
		testkit.OK(t, r.db.Close())
	})
}

// A change whose client disconnects is made, and is reported.
// Else whoever asks takes what runs for what ran before, and makes later changes from there.
func TestReloadClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		r.a.Set(testkit.Hung)
		r.Create("shop/p", nil)
		r.settle()
		asking, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		done, err := r.Reconfigure(asking, &bridge.Change{Informers: []string{"two"}, Units: []informer.Config{r.two}, Sinks: keep("a", "b")})
		if err != nil || done.UnitsStopped != 1 || asking.Err() == nil {
			t.Errorf("%+v, %v", done, err)
		}
		r.a.Set(testkit.Healthy)
		r.finish()
	})
}

// A stop while a change waits for a sink is a stop.
func TestStopDuringReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		r.a.Set(testkit.Slow)
		for i := range 200 {
			r.Create("shop/p", func(obj map[string]any) { obj["n"] = i })
		}
		synctest.Wait()
		result := make(chan error, 1)
		go func() {
			_, err := r.Reconfigure(context.WithoutCancel(t.Context()), &bridge.Change{
				Informers: []string{"one", "two"}, Changed: []string{"one"}, Units: []informer.Config{r.one, r.two}, Sinks: keep("a", "b"),
			})
			result <- err
		}()
		time.Sleep(100 * time.Millisecond)
		r.stop(errStop)
		if err := <-result; !errors.Is(err, bridge.ErrStopping) {
			t.Errorf("the change: %v", err)
		}
		r.a.Set(testkit.Healthy)
		if err := <-r.done; err != nil && !errors.Is(err, bridge.ErrDrain) {
			t.Error(err)
		}
		testkit.OK(t, r.db.Close())
		r.cfg.Registerer = prometheus.NewRegistry()
		r.start()
		time.Sleep(time.Minute)
		r.settle()
		if n := len(versionsOf(r.b)); n != 200 || !slices.IsSorted(versionsOf(r.b)) {
			t.Errorf("the other sink has %d changes", n)
		}
		if n := len(versionsOf(r.a)); n != 200 || !slices.IsSorted(versionsOf(r.a)) {
			t.Errorf("the sink has %d changes", n)
		}
		r.finish()
	})
}

// A paused informer and a paused sink are reported, and stay paused through a change.
func TestReloadWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.start()
		expect(t, r.a, "synced", "synced")
		expect(t, r.b, "synced", "synced")
		testkit.OK(t, r.PauseInformer(t.Context(), "one", "ada"))
		testkit.OK(t, r.PauseSink(t.Context(), "b", "ada"))
		r.settle()
		reasons := fmt.Sprint(r.Ready())
		for _, want := range []string{"informer one/pods: paused by ada since 2000-01-01T00:00:02Z; 'bridge resume informer one' ends it", "sink b: paused by ada"} {
			if !strings.Contains(reasons, want) {
				t.Errorf("Ready: %s", reasons)
			}
		}
		if s := r.Status(); s.Informers[0].Phase != "paused" || s.Informers[0].PausedBy.By != "ada" || s.Informers[1].PausedBy != nil || !s.Sinks[1].Paused {
			t.Errorf("status: %+v", s)
		}
		r.Create("shop/p", nil)
		r.widgets.Create("shop/w", nil)
		r.settle()
		expect(t, r.a, "added w")
		both := []string{"one", "two"}
		r.change(bridge.Change{
			Informers: both, Changed: both, Units: []informer.Config{r.one, r.two},
			Sinks: []bridge.SinkConfig{{Name: "a"}, {Name: "b", Sink: r.b.Connect(0)}},
		})
		r.widgets.Update("shop/w", nil)
		r.settle()
		expect(t, r.a, "updated w")
		expect(t, r.b)
		testkit.OK(t, r.ResumeInformer(t.Context(), "one"))
		testkit.OK(t, r.ResumeSink(t.Context(), "b"))
		r.settle()
		expect(t, r.a, "added p")
		expect(t, r.b, "added w", "updated w", "added p")
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("Ready: %v", reasons)
		}
		for _, err := range []error{r.PauseInformer(t.Context(), "none", "ada"), r.ResumeInformer(t.Context(), "none"), r.PauseSink(t.Context(), "none", "ada"), r.ResumeSink(t.Context(), "none")} {
			if !errors.Is(err, bridge.ErrUnknown) {
				t.Errorf("of what is not there: %v", err)
			}
		}
		r.finish()
	})
}

// A requested snapshot is sent in order and under new ids.
func TestSnapshotRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		blue := func(obj map[string]any) { obj["metadata"].(map[string]any)["labels"] = map[string]any{"color": "blue"} }
		r.Create("shop/p", blue)
		r.Create("mail/q", nil)
		r.start()
		expect(t, r.a, "synced", "synced", "added p", "added q")
		requests := len(r.asked())
		send := func(req informer.SnapshotRequest) {
			t.Helper()
			req.Informer = "one"
			units, err := r.SendSnapshot(t.Context(), req)
			testkit.OK(t, err)
			if !slices.Equal(units, []string{"one/pods"}) {
				t.Errorf("units %v", units)
			}
			r.settle()
		}
		send(informer.SnapshotRequest{})
		expect(t, r.a, "synced p", "synced q")
		send(informer.SnapshotRequest{Namespace: "mail", Resource: "pods"})
		expect(t, r.a, "synced q")
		selector, err := labels.Parse("color=blue")
		testkit.OK(t, err)
		send(informer.SnapshotRequest{Selector: selector})
		expect(t, r.a, "synced p")
		expect(t, r.b, "synced", "synced", "added p", "added q", "synced p", "synced q", "synced q", "synced p")
		send(informer.SnapshotRequest{Sink: "b"})
		expect(t, r.a)
		expect(t, r.b, "synced p", "synced q")
		ids := map[string]bool{}
		for _, rec := range r.b.Records() {
			if ids[rec.ID] {
				t.Errorf("the id %s comes twice", rec.ID)
			}
			ids[rec.ID] = true
			if strings.HasSuffix(rec.Type, "resource.synced") && (!rec.Initial || !strings.Contains(rec.ID, "/sync/")) {
				t.Errorf("%s is not marked: %+v", rec.ID, rec.Event)
			}
		}
		if n := len(r.asked()) - requests; n > 0 {
			t.Errorf("%d requests", n)
		}
		for _, req := range []informer.SnapshotRequest{{Informer: "none"}, {Informer: "one", Resource: "widgets"}, {Informer: "one", Sink: "none"}} {
			if _, err := r.SendSnapshot(t.Context(), req); !errors.Is(err, bridge.ErrUnknown) {
				t.Errorf("%+v: %v", req, err)
			}
		}
		r.finish()
	})
}

// A snapshot by an index has what an object owns, the pods of a node, or what has a label.
func TestSnapshotByIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.cfg.Units[0].Indexes = []store.Index{store.ByLabel("color")}
		uid := func(name string) string {
			states, err := r.Object("pods", "shop", name)
			testkit.OK(t, err)
			return states[0].UID
		}
		set := func(color, owner, node string) func(map[string]any) {
			return func(obj map[string]any) {
				metadata := obj["metadata"].(map[string]any)
				metadata["labels"] = map[string]any{"color": color, "tier": color}
				metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": owner}}
				obj["spec"] = map[string]any{"nodeName": node}
			}
		}
		r.Create("shop/a", set("blue", "top", "n1"))
		r.Create("shop/b", set("red", "other", "n1"))
		r.start()
		r.settle()
		r.Create("shop/c", set("green", uid("a"), "n2"))
		r.settle()
		r.Update("shop/a", set("red", "top", "n1"))
		r.settle()
		_ = r.a.Next()
		send := func(req informer.SnapshotRequest, want ...string) {
			t.Helper()
			_, err := r.SendSnapshot(t.Context(), req)
			testkit.OK(t, err)
			r.settle()
			expect(t, r.a, want...)
		}
		owners, err := r.OwnerUIDs("top")
		testkit.OK(t, err)
		testkit.Want(t, owners, "top", uid("a"), uid("c"))
		send(informer.SnapshotRequest{Index: "owner", Values: owners}, "synced a", "synced c")
		send(informer.SnapshotRequest{Index: "owner", Values: []string{"top"}}, "synced a")
		send(informer.SnapshotRequest{Informer: "one", Index: "node", Values: []string{"n1", "n1"}}, "synced a", "synced b")
		send(informer.SnapshotRequest{Index: "node", Values: []string{"n1"}, Namespace: "mail"})
		send(informer.SnapshotRequest{Index: "node", Values: []string{"n1"}, Sink: "b"})
		for text, want := range map[string][]string{
			"color=red": {"synced a", "synced b"}, "color in (green,blue)": {"synced c"}, "tier=red": {"synced a", "synced b"},
			"color=red,tier!=red": nil, "color!=red": {"synced c"},
		} {
			selector, err := labels.Parse(text)
			testkit.OK(t, err)
			send(informer.SnapshotRequest{Selector: selector}, want...)
		}
		for _, req := range []informer.SnapshotRequest{
			{Informer: "two", Index: "node", Values: []string{"n1"}}, {Index: "other", Values: []string{"x"}},
		} {
			if _, err := r.SendSnapshot(t.Context(), req); !errors.Is(err, bridge.ErrUnknown) {
				t.Errorf("%+v: %v", req, err)
			}
		}
		r.finish()
	})
}

// Changes that come while a snapshot is sent keep their order with it, and the backlog is bounded.
func TestSnapshotAmongChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReload(t)
		r.cfg.Units[0].Memory = 32 << 10
		const objects = 400
		for i := range objects {
			r.Create(key(i), nil)
		}
		r.start()
		time.Sleep(time.Minute)
		r.settle()
		r.b.Set(testkit.Slow)
		_, err := r.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "one"})
		testkit.OK(t, err)
		if _, err := r.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "one"}); err != nil && !errors.Is(err, informer.ErrBusy) {
			t.Errorf("a second one: %v", err)
		}
		for i := range objects {
			r.Update(key(i), nil)
			if s := r.Status().Informers[0]; s.QueuedBytes > 33<<10 || s.LogBytes > 128<<10 {
				t.Errorf("%d bytes are queued, %d in the log", s.QueuedBytes, s.LogBytes)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		r.settle()
		for _, b := range []*testkit.Broker{r.a, r.b} {
			synced, last := map[string]bool{}, map[string]string{}
			for _, rec := range b.Records() {
				if !rec.Acked || rec.Name == "" {
					continue
				}
				if rec.Sequence < last[rec.Name] {
					t.Errorf("%s: %s @%s comes behind @%s", b.Name, rec.Name, rec.Sequence, last[rec.Name])
				}
				last[rec.Name] = rec.Sequence
				synced[rec.Name] = synced[rec.Name] || strings.HasSuffix(rec.Type, ".synced")
			}
			for i := range objects {
				if _, name := key(i).Split(); !synced[name] {
					t.Errorf("%s: %s was not sent again", b.Name, name)
				}
			}
		}
		r.finish()
	})
}
