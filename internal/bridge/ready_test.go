package bridge_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

// notReady sees that there is one reason, with some words in it.
func (r *rig) notReady(words ...string) {
	r.t.Helper()
	reasons := r.Ready()
	if len(reasons) != 1 {
		r.t.Errorf("reasons %v, want one with %q", reasons, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(reasons[0].String(), word) {
			r.t.Errorf("not ready because of %q, want %q in it", reasons[0], word)
		}
	}
}

func (r *rig) ready() {
	r.t.Helper()
	if reasons := r.Ready(); len(reasons) > 0 {
		r.t.Errorf("not ready: %v", reasons)
	}
}

// A watch that brings nothing is reopened, and the bridge is not ready until it brings something.
func TestNotReadySilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		r.cfg.Watchdog = 2 * time.Minute
		r.start()
		for range 4 { // bookmarks keep it alive
			r.Skip(1)
			r.Streams.Bookmark()
			time.Sleep(time.Minute)
			r.ready()
		}
		time.Sleep(time.Minute + 50*time.Second)
		r.notReady("informer all/pods", "neither event nor bookmark", "2m0s")
		if got := len(r.Requests(testkit.Watches)); got != 2 {
			t.Errorf("%d watches: the silent one was not opened again", got)
		}
		if s := r.Status().Informers[0]; s.QuietSeconds < 150 {
			t.Errorf("quiet for %v s", s.QuietSeconds)
		}
		r.Skip(1)
		r.Streams.Bookmark()
		r.settle()
		r.ready()
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// A resource without versions can't be followed, and the bridge is ready for the others.
func TestReadyWithoutVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		r.Faults.Answer(testkit.Any, 100, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"PodList","metadata":{},"items":[]}`))
		})
		r.start()
		time.Sleep(time.Minute)
		r.ready()
		if s := r.Status().Informers[0]; !strings.Contains(s.LastError, "a resource without versions can't be followed") {
			t.Errorf("%+v", s)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// A sink that lags makes the bridge not ready.
func TestNotReadyLaggingSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "slow")
		r := newRig(t, b)
		r.cfg.Units[0].Lag = 10 * time.Minute
		r.start()
		b.Set(testkit.Hung)
		r.Create("shop/a", nil)
		r.Skip(10)
		r.Streams.Bookmark()
		time.Sleep(9 * time.Minute)
		for _, reason := range r.Ready() {
			if strings.Contains(reason.Message, "lags") {
				t.Errorf("too early: %v", reason)
			}
		}
		time.Sleep(2 * time.Minute)
		lags := func() (found bool) {
			for _, reason := range r.Ready() {
				found = found || reason.Component == "informer all/pods" && strings.Contains(reason.Message, "waits for sink slow for 11m")
			}
			return found
		}
		if !lags() {
			t.Errorf("reasons %v", r.Ready())
		}
		s := r.Status().Informers[0]
		if sink := r.Status().Sinks[0]; sink.LagSeconds < 660 || sink.PendingChanges != 1 || sink.State != "blocked" {
			t.Errorf("the sink is %s, %v s and %d changes behind", sink.State, sink.LagSeconds, sink.PendingChanges)
		}
		if s.OldestSeconds["slow"] < 660 || s.VersionsBehind == nil || *s.VersionsBehind != 0 { // what lies on disk is settled
			t.Errorf("%+v", s)
		}
		b.Set(testkit.Healthy)
		time.Sleep(time.Minute) // more than the pause between two attempts
		r.settle()
		if lags() || r.Status().Informers[0].OldestSeconds["slow"] != 0 {
			t.Errorf("reasons %v after it was sent", r.Ready())
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// A full disk that stops reading makes the bridge not ready.
func TestNotReadyFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, behind, _ := dropper(t)
		r.cfg.Units[0].DropOldest = false
		r.start()
		r.Create("shop/a", nil)
		r.settle()
		behind.Set(testkit.Hung)
		for range 30 {
			r.churn("shop/a", 20)
			r.settle()
		}
		found := false
		for _, reason := range r.Ready() {
			found = found || strings.Contains(reason.Message, "the log on disk is full")
		}
		if !found {
			t.Errorf("reasons %v", r.Ready())
		}
		behind.Set(testkit.Healthy)
		for range 30 {
			r.settle()
		}
		r.ready()
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// Nothing is reported in sync before it is.
// A watch from an expired version may be accepted, and end with a 410 in its stream.
func TestNotReadyBeforeSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.Create("shop/a", nil)
		r.start()
		_, err := r.end()
		testkit.OK(t, err)
		expect(t, b, "added a", "synced")
		r.Create("shop/b", nil)
		r.Skip(10)
		r.Expire()
		r.log.reset()
		r.Faults.Hang(func(q testkit.Request) bool { return testkit.WatchLists(q) || testkit.Lists(q) }, -1)
		r.Faults.AcceptExpired(testkit.Watches, -1, 900*time.Millisecond)
		r.start()
		time.Sleep(15 * time.Second)
		const said = "all resources are in sync"
		if strings.Contains(r.log.String(), said) || r.Status().Informers[0].Synced {
			t.Error("said to be in sync while nothing is listed")
		}
		r.Faults.Heal() // the server has the list now
		time.Sleep(10 * time.Minute)
		if !strings.Contains(r.log.String(), said) {
			t.Error("never in sync")
		}
		r.ready()
		_, err = r.end()
		testkit.OK(t, err)
		expect(t, b, "gap inferred", "added b inferred", "synced")
	})
}

func (l *logBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}
