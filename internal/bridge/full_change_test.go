package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A resource that appears while the disk is full is watched when the disk has space again.
func TestFullDiskAppearance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk := calmBroker(t, "sink"), &moody{}
		r := newRig(t, b)
		r.wrap = disk.wrap
		other := testkit.NewServer(t, widgets)
		r.cfg.Client.HTTP = &http.Client{Transport: byPath{other.HTTP().Transport, r.HTTP().Transport}}
		r.cfg.PlanInterval = 2 * time.Minute
		// At first the API server can't say whether there are widgets. So those that exist when
		// they appear are no changes.
		var answers atomic.Bool
		r.cfg.Unknown = func(t resource.Type) bool { return t == widgets }
		r.cfg.Planner = func(context.Context) (bridge.Plan, error) {
			plan := bridge.Plan{Units: r.cfg.Units, Unknown: r.cfg.Unknown}
			if answers.Load() {
				u := r.cfg.Units[0]
				u.Type, u.Snapshot = widgets, informer.SnapshotNever
				plan = bridge.Plan{Units: append(slices.Clone(plan.Units), u)}
			}
			return plan, nil
		}
		r.Create("shop/p", nil)
		r.start()
		expect(t, b, "added p", "synced")

		disk.set(syscall.ENOSPC)
		r.Update("shop/p", nil)
		time.Sleep(5 * time.Second)
		first := r.cfg
		first.Units = slices.Clone(first.Units)
		first.Units[0].Informer = "first"
		if _, err := bridge.New(first); !errors.Is(err, statedb.ErrUnavailable) {
			t.Errorf("a start on a full disk: %v", err)
		}
		answers.Store(true)
		other.Create("shop/w", nil)
		time.Sleep(5 * time.Minute)
		select {
		case err := <-r.done:
			t.Fatalf("the bridge has ended: %v", err)
		default:
		}
		if s := r.Status().Informers; len(s) != 1 {
			t.Errorf("%+v", s)
		}
		const reported = "level=WARN msg=\"a resource that the API server serves is not watched"
		if n := strings.Count(r.log.String(), reported); n != 1 {
			t.Errorf("it is logged %d times that a resource waits", n)
		}
		if n := strings.Count(r.log.String(), "level=ERROR"); n != 1 {
			t.Errorf("there are %d errors in the log", n)
		}
		expect(t, b, "updated p") // was sent before the disk was found to be full
		disk.set(0)
		time.Sleep(5 * time.Second)
		r.Update("shop/p", nil)
		other.Create("shop/new", nil)
		r.settle()
		expect(t, b, "updated p", "added new")
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("Ready: %v", reasons)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// closed is a sink that calls a function when it has closed.
type closed struct {
	sinks.Sink
	then func()
}

func (c closed) Close() error {
	defer c.then()
	return c.Sink.Close()
}

// A change of the configuration on a full disk changes nothing. One on a disk that fills up
// meanwhile is made when there is space again. Neither ends the bridge.
func TestFullDiskReload(t *testing.T) {
	run := func(name string, test func(t *testing.T, r *reload, disk *moody)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, disk := newReload(t), &moody{}
				r.wrap = disk.wrap
				test(t, r, disk)
			})
		})
	}
	three := func(r *reload) bridge.Change { // one more informer, and no sink "spare"
		third := r.one
		third.Informer, third.Namespace = "three", "other"
		return bridge.Change{
			Informers: []string{"one", "two", "three"}, Changed: []string{"three"},
			Units: []informer.Config{r.one, r.two, third}, Sinks: keep("a", "b"),
		}
	}
	begin := func(t *testing.T, r *reload) (result chan error, done *bridge.Changes) {
		result, done = make(chan error, 1), new(bridge.Changes)
		go func() {
			c, err := three(r), error(nil)
			*done, err = r.Reconfigure(context.WithoutCancel(t.Context()), &c)
			result <- err
		}()
		return result, done
	}
	works := func(t *testing.T, r *reload) {
		t.Helper()
		r.a.Seen = len(r.a.Records())
		r.Create("other/q", nil)
		r.widgets.Create("shop/w", nil)
		r.settle()
		expect(t, r.a, "added q", "added q", "added w")
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("Ready: %v", reasons)
		}
		r.finish()
	}
	run("a full disk refuses it", func(t *testing.T, r *reload, disk *moody) {
		r.cfg.Sinks = append(r.cfg.Sinks, bridge.SinkConfig{Name: "spare", Sink: calmBroker(t, "spare").Connect(0)})
		r.start()
		disk.set(syscall.ENOSPC)
		r.Create("shop/p", nil)
		r.settle()
		result, _ := begin(t, r)
		time.Sleep(time.Minute)
		select {
		case err := <-result:
			if !errors.Is(err, statedb.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("Reconfigure: %v", err)
			}
		default:
			t.Error("Reconfigure waits")
		}
		if s := r.Status(); len(s.Informers) != 2 || len(s.Sinks) != 3 {
			t.Errorf("%+v", s)
		}
		disk.set(0)
		r.settle()
		if done := r.change(three(r)); done.UnitsStarted != 1 || done.SinksStopped != 1 {
			t.Errorf("%+v", done)
		}
		works(t, r)
	})
	// fills has the disk fill up when the sink has ended, and, with a commit under way, before the
	// commit that ends it.
	fills := func(t *testing.T, r *reload, disk *moody, committing bool) (result chan error, done *bridge.Changes) {
		sink := closed{calmBroker(t, "spare").Connect(0), func() {
			disk.set(syscall.ENOSPC)
			if committing {
				r.Update("shop/p", nil)
				time.Sleep(time.Second)
			}
		}}
		r.cfg.Sinks = append(r.cfg.Sinks, bridge.SinkConfig{Name: "spare", Sink: sink})
		r.Create("shop/p", nil)
		r.start()
		result, done = begin(t, r)
		time.Sleep(time.Minute)
		select {
		case err := <-result:
			t.Fatalf("on a full disk the change has ended: %v", err)
		case err := <-r.done:
			t.Fatalf("the bridge has ended: %v", err)
		default:
		}
		if reasons := fmt.Sprint(r.Ready()); !strings.Contains(reasons, "is full") {
			t.Errorf("Ready: %s", reasons)
		}
		return result, done
	}
	run("a stop leaves the mark of a clean end out where a unit is not started again", func(t *testing.T, r *reload, disk *moody) {
		r.start()
		after := r.fs.CrashClone(crashed)
		r.finish()
		r.fs, r.cfg.Registerer = after, prometheus.NewRegistry()
		r.Faults.Refuse(testkit.Any, -1, http.StatusForbidden, metav1.StatusReasonForbidden)
		r.cfg.Sinks = append(r.cfg.Sinks, bridge.SinkConfig{
			Name: "spare", Sink: closed{calmBroker(t, "spare").Connect(0), func() { disk.set(syscall.ENOSPC) }},
		})
		r.start() // one does not know what was sent before the crash
		r.widgets.Create("shop/v", nil)
		r.widgets.Streams.Bookmark()
		r.settle()
		r.a.Set(testkit.Hung)
		r.widgets.Create("shop/w", nil)
		r.settle()
		result := make(chan error, 1)
		go func() {
			c := three(r)
			c.Informers, c.Changed = append(c.Informers, "first"), []string{"first", "one"}
			c.Units[2].Informer = "first"
			_, err := r.Reconfigure(context.WithoutCancel(t.Context()), &c)
			result <- err
		}()
		time.Sleep(time.Minute)
		r.stop(errStop)
		if err := <-result; !errors.Is(err, bridge.ErrStopping) {
			t.Errorf("Reconfigure: %v", err)
		}
		disk.set(0)
		time.Sleep(time.Second) // a drain waits longer
		r.a.Set(testkit.Healthy)
		testkit.OK(t, <-r.done)
		testkit.OK(t, r.db.Close())
		db, err := store.Open(statedb.Options{Dir: "state", FS: r.fs})
		testkit.OK(t, err)
		if db.Database().Runs().WasClean() {
			t.Error("the run is said to know all that was sent")
		}
		testkit.OK(t, db.Close())
	})
	for when, committing := range map[string]bool{"a sink ends": true, "an informer starts": false} {
		run("a disk that is full when "+when+" holds it up", func(t *testing.T, r *reload, disk *moody) {
			result, done := fills(t, r, disk, committing)
			disk.set(0)
			testkit.OK(t, <-result)
			if done.UnitsStarted != 1 || done.SinksStopped != 1 {
				t.Errorf("%+v", done)
			}
			r.settle()
			works(t, r)
		})
		run("a stop when "+when+" is a stop", func(t *testing.T, r *reload, disk *moody) {
			result, _ := fills(t, r, disk, committing)
			r.stop(errStop)
			if err := <-result; !errors.Is(err, bridge.ErrStopping) {
				t.Errorf("Reconfigure: %v", err)
			}
			err := <-r.done
			isOfDisk := errors.Is(err, statedb.ErrUnavailable) || errors.Is(err, bridge.ErrDrain)
			if !isOfDisk || errors.Is(err, bridge.ErrStopping) {
				t.Errorf("Run: %v, want that the disk took nothing more", err)
			}
			disk.set(0)
			time.Sleep(time.Minute)
			testkit.OK(t, r.db.Close())
		})
	}
}
