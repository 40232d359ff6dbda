package reflector_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A watch hands on every event in order.
// As TestReflectorWatchHandler and TestReflectorResourceVersionUpdate.
func TestWatchOrder(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.Create("shop/a", func(o map[string]any) { o["spec"] = map[string]any{"nodeName": "n1"} })
		c.Update("shop/a", nil)
		c.Create("shop/b", nil)
		c.Delete("shop/a")
		c.expect("add shop/a@98", "update shop/a@99", "add shop/b@100", "delete shop/a@101")
		if got := c.refl.Status(); got.Version != "101" || got.Phase != reflector.Watching ||
			!got.Synced || got.LastSeen.IsZero() {
			t.Errorf("Status = %+v", got)
		}
		if got := c.metric("events_total", ""); got != 4 {
			t.Errorf("events_total = %v", got)
		}
		if got := c.metric("frame_bytes_total", ""); got < 500 {
			t.Errorf("frame_bytes_total = %v", got)
		}
	})
}

// A reflector that resumes probes, and lists nothing.
// As TestReflectorResyncWithResourceVersion, but across a restart of the program.
func TestResume(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a", "shop/b", "shop/c")
		saved := c.Version()
		c.Update("shop/b", nil)
		c.follow(pods, c.from(saved))
		c.expect("update shop/b@101")
		c.expectRequests(testkit.Probes, 1, "probes")
		c.expectRequests(testkit.Lists, 0, "lists")
		probe := c.Requests(testkit.Probes)[0].Query
		if len(probe) != 1 {
			t.Errorf("the probe asks for %v", probe)
		}
		watch := c.Requests(testkit.Watches)[0]
		if watch.Query.Get("resourceVersion") != string(saved) ||
			watch.Query.Get("allowWatchBookmarks") != "true" {
			t.Errorf("the watch asks for %v", watch.Query)
		}
		if got := watch.Header.Get("Accept"); got != "application/json" {
			t.Errorf("Accept: %q", got)
		}
	})
}

// Without a snapshot the reflector starts from now.
func TestNoSnapshot(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, func(cfg *reflector.Config) { cfg.Snapshot = false })
		// so that a restart continues from here, even if nothing happens until then
		c.expect("bookmark 98")
		c.create("shop/b")
		c.expect("add shop/b@99")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// Bookmarks move the version of an idle watch.
func TestBookmarks(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.Skip(500)
		c.Streams.Bookmark()
		c.expect("bookmark 597")
		c.Streams.Close()
		c.later(time.Minute)
		watches := c.Requests(testkit.Watches)
		if got := watches[len(watches)-1].Query.Get("resourceVersion"); got != "597" {
			t.Errorf("the watch continues from %s", got)
		}
	})
}

// As TestReflectorHandleWatchResultChanClosedAfter: a watch that the server ends is opened again at
// once, without a list.
func TestReopenedWatch(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		c.later(10 * time.Second)
		c.Streams.Close()
		synctest.Wait()
		c.create("shop/b")
		c.expect("add shop/a@98", "add shop/b@99")
		c.expectRequests(testkit.Watches, 2, "watches")
		c.expectRequests(testkit.Probes, 2, "probes")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// Watches ask to be ended at random times.
// As TestWatchTimeout.
func TestRandomWatchTimeouts(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.later(2 * time.Hour)
		seen := map[string]bool{}
		watches := c.Requests(testkit.Watches)
		for _, w := range watches {
			d, err := time.ParseDuration(w.Query.Get("timeoutSeconds") + "s")
			if err != nil || d < 5*time.Minute || d > 10*time.Minute {
				t.Errorf("timeoutSeconds = %s", w.Query.Get("timeoutSeconds"))
			}
			seen[d.String()] = true
		}
		if len(watches) < 12 || len(watches) > 24 || len(seen) < 5 {
			t.Errorf("%d watches of %d different times in two hours", len(watches), len(seen))
		}
	})
}

// A watch that is not ended in time is cut.
func TestOverdueWatch(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{IgnoresTimeout: true})
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.WatchTimeout = time.Minute
		})
		c.later(2*time.Minute + 31*time.Second)
		c.create("shop/a")
		c.later(5 * time.Second)
		c.expect("add shop/a@98")
		if got := len(c.Requests(testkit.Watches)); got < 2 {
			t.Errorf("%d watches: the first one was not cut", got)
		}
		if got := c.metric("errors_total", "silent"); got != 1 {
			t.Errorf("errors_total{silent} = %v", got)
		}
	})
}

// The watchdog cuts a silent watch.
func TestWatchdog(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.Watchdog = 90 * time.Second
		})
		for range 3 { // bookmarks keep it alive
			c.later(time.Minute)
			c.Skip(1)
			c.Streams.Bookmark()
		}
		c.expectRequests(testkit.Watches, 1, "watches")
		c.later(91 * time.Second)
		c.expectRequests(testkit.Watches, 2, "watches")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// Silence without bookmarks is no failure.
// Of Events and of many aggregated servers no bookmarks come.
func TestSilenceWithoutBookmarks(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.Watchdog = 90 * time.Second
		})
		for range 100 {
			c.later(3 * time.Second)
			if s := c.refl.Status(); s.LastError != "" || s.Quiet() > 91*time.Second {
				t.Fatalf("quiet for %v: %q", s.Quiet(), s.LastError)
			}
		}
		c.expectRequests(testkit.Watches, 4, "watches")
		c.expectRequests(testkit.Probes, 4, "probes, in case the server's history went back "+
			"meanwhile")
		if got := c.metric("errors_total", "silent"); got != 0 {
			t.Errorf("errors_total{silent} = %v", got)
		}
	})
}

// After an expired version, the reflector is not in sync before everything is listed.
func TestSyncAfterExpiry(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		from := c.Version()
		c.create("shop/a")
		c.Skip(10)
		c.Expire()
		c.Faults.Hang(func(q testkit.Request) bool { return testkit.WatchLists(q) || testkit.Lists(q) },
			-1)
		c.Faults.AcceptExpired(testkit.Watches, -1, 900*time.Millisecond)
		c.follow(pods, c.from(from))
		for range 100 {
			if s := c.refl.Status(); s.Synced {
				t.Fatalf("in sync while %s", s.Phase)
			}
			c.later(100 * time.Millisecond)
		}
	})
}

// A slow store is no silence.
func TestSlowStore(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.Watchdog = time.Minute
		})
		gate := make(chan struct{})
		c.store.set(func(s *recorder) { s.block = gate })
		c.create("shop/a")
		c.later(3 * time.Minute)
		close(gate)
		c.expect("add shop/a@98")
		c.expectRequests(testkit.Watches, 1, "watches")
	})
}

// Only what the store accepted is the position.
func TestPosition(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		synctest.Wait()
		gate := make(chan struct{})
		c.store.set(func(s *recorder) { s.block = gate })
		c.create("shop/b", "shop/c")
		synctest.Wait()
		if got := c.refl.Status().Version; got != "98" {
			t.Errorf("Version = %s while the store has not taken 99", got)
		}
		c.Streams.Cut() // what was read ahead and not taken comes again
		close(gate)
		c.later(time.Minute)
		c.expect("add shop/a@98", "add shop/b@99", "add shop/c@100")
	})
}

// A cut amid the events of one version loses none.
// A lease that expires deletes many Events at one version (kubernetes/kubernetes#110210).
func TestCutInOneVersion(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a", "shop/b", "shop/c")
		c.follow(pods, c.from(c.Version()))
		c.create("shop/d")
		c.expect("add shop/d@101")
		c.Streams.Close()
		synctest.Wait()
		c.Faults.CutAfter(testkit.Watches, 1, 700) // one and a half frames
		c.Streams.Cut()
		c.Delete("shop/a", "shop/b", "shop/c")
		c.later(time.Minute)
		got := c.store.take()
		want := []string{"delete shop/a@102", "delete shop/b@102", "delete shop/c@102"}
		if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("the store got %q, want %q", got, want)
		}
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// Run returns when its context ends.
// As TestReflectorStopWatch and TestRunUntil.
func TestRunCancelled(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.cancel()
		if err := <-c.result; err != nil {
			t.Errorf("Run: %v", err)
		}
		c.result <- nil // for the cleanup
		if got := c.refl.Status().Phase; got != reflector.Stopped {
			t.Errorf("Phase = %s", got)
		}
		synctest.Wait()
		if got := c.Streams.Count(); got != 0 {
			t.Errorf("%d watches are still open", got)
		}
	})
}

// Run returns while the store blocks.
func TestRunCancelledInStore(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.store.set(func(s *recorder) { s.block = make(chan struct{}) })
		c.create("shop/a")
		synctest.Wait()
		c.cancel()
		if err := <-c.result; err != nil {
			t.Errorf("Run: %v", err)
		}
		c.result <- nil
	})
}

// An error of the store ends Run.
func TestStoreError(t *testing.T) {
	full := errors.New("disk is full")
	for _, call := range []string{
		"begin initial", "replace shop/a@98", "end 98", "add shop/b@99",
		"bookmark 99",
	} {
		t.Run(call, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				c.store.fail = func(got string) error {
					if got == call {
						return full
					}
					return nil
				}
				c.follow(pods, nil)
				c.create("shop/b")
				synctest.Wait()
				c.Streams.Bookmark()
				synctest.Wait()
				select {
				case err := <-c.result:
					if !errors.Is(err, full) {
						t.Errorf("Run: %v, want %v", err, full)
					}
					c.result <- nil
				default:
					t.Error("Run continues")
				}
			})
		})
	}
}

// Frames may be pretty-printed or compressed.
func TestFrameForms(t *testing.T) {
	for name, features := range map[string]testkit.Features{
		"pretty": {Pretty: true}, "gzip": {Gzip: true}, "both": {Pretty: true, Gzip: true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, widgets)
				c.SetFeatures(features)
				c.create("shop/a")
				c.follow(widgets, nil)
				c.Update("shop/a", nil)
				c.expect("begin initial", "replace shop/a@98", "end 98", "update shop/a@99")
			})
		})
	}
}

// Selectors are sent with the list and the watch, but not with the probe.
func TestSelectors(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		label := func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"] = map[string]any{"app": "web"}
		}
		c.Create("shop/a", label)
		c.Create("shop/b", nil)
		c.Create("else/c", label)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.Namespace, cfg.LabelSelector, cfg.FieldSelector = "shop", "app=web",
				"metadata.name!=x"
			cfg.DisableWatchList = true
		})
		c.expect("begin initial", "replace shop/a@98", "end 100")
		c.Update("shop/b", label) // comes into the selection
		c.Update("shop/a", func(o map[string]any) {
			delete(o["metadata"].(map[string]any),
				"labels")
		})
		c.expect("add shop/b@101", "delete shop/a@102")
		c.Expire()
		c.Skip(1)
		c.Streams.Cut()
		c.later(time.Minute)
		for _, r := range c.Requests(testkit.Any) {
			byLabel := r.Query.Get("labelSelector") == "app=web"
			byField := r.Query.Get("fieldSelector") == "metadata.name!=x"
			if byLabel == testkit.Probes(r) || byField == testkit.Probes(r) ||
				r.Path != "/api/v1/namespaces/shop/pods" {
				t.Errorf("request %s %v", r.Path, r.Query)
			}
		}
	})
}

// A probe that is forbidden is tried again with the selectors.
func TestForbiddenProbe(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Refuse(func(r testkit.Request) bool { return r.Query.Get("fieldSelector") == "" }, -1,
			http.StatusForbidden, "Forbidden")
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.FieldSelector = "metadata.name=a"
		})
		c.create("shop/a")
		c.expect("add shop/a@98")
	})
}

// Versions without an order can be followed.
func TestUnorderedVersions(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, widgets)
		c.SetFeatures(testkit.Features{Unordered: true})
		saved := c.Version()
		c.create("shop/a")
		c.follow(widgets, c.from(saved))
		c.expect("add shop/a@v98")
		if saved != resource.Version("v97") {
			t.Errorf("the test's versions are ordered: %s", saved)
		}
	})
}

// A deletion with the version of the last state is handed on.
// As aggregated API servers do that leave the version of the last state in a deletion.
func TestDeletionOfSameVersion(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, nil)
		c.Update("shop/a", nil)
		synctest.Wait()
		frame := string(testkit.Frame(watch.Deleted, c.store.last().Raw))
		c.Streams.Raw(frame)
		c.Streams.Raw(frame)
		c.expect("begin initial", "replace shop/a@98", "end 98", "update shop/a@99",
			"delete shop/a@99")
	})
}
