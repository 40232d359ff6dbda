package reflector_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// As TestWatchList and TestWatchListResourceVersion.
func TestWatchListContinues(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/b", "shop/a")
		c.follow(pods, nil)
		c.Update("shop/a", nil)
		c.expect("begin initial", "replace shop/a@99", "replace shop/b@98", "end 99",
			"update shop/a@100")
		c.expectRequests(testkit.Any, 1, "requests")
		q := c.Requests(testkit.Any)[0].Query
		if q.Has("resourceVersion") || q.Get("resourceVersionMatch") != "NotOlderThan" ||
			q.Get("sendInitialEvents") != "true" {
			t.Errorf("it asks for %v", q)
		}
	})
}

// A server without WatchList is remembered.
// As TestNewReflectorWithDisablementWatchList and the fallback of client-go.
func TestWatchListUnsupported(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoWatchList: true})
		c.create("shop/a")
		c.follow(pods, nil)
		c.expect("begin initial", "replace shop/a@98", "end 98")
		c.expireNow()
		c.later(10 * time.Second)
		c.expect("begin expired 98..99", "replace shop/a@98", "end 99")
		c.expectRequests(testkit.WatchLists, 1, "WatchLists")
	})
}

// expireNow makes the server forget what the watch would need, and cuts it.
func (c *cluster) expireNow() {
	c.later(2 * time.Second)
	c.Skip(1)
	c.Expire()
	c.Streams.Cut()
}

// A reflector whose watch is forbidden still lists.
func TestForbiddenWatch(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.Faults.Refuse(testkit.Watches, -1, http.StatusForbidden, metav1.StatusReasonForbidden)
		c.follow(pods, nil)
		c.expect("begin initial", "replace shop/a@98", "end 98")
		c.later(time.Hour)
		c.expect()
		c.Faults.Heal()
		c.create("shop/b")
		c.later(2 * time.Minute)
		c.expect("add shop/b@99")
		c.expectRequests(testkit.Lists, 1, "lists")
	})
}

// A WatchList without its end is given up.
// As TestInitialEventsEndBookmarkTicker, which only warns; here it gives up
// (kubernetes/kubernetes#140890).
func TestWatchListWithoutEnd(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a")
		c.follow(pods, nil)
		c.later(119 * time.Second)
		c.expect("begin initial", "replace shop/a@98")
		c.later(2 * time.Second)
		c.expect("begin initial", "replace shop/a@98", "end 98")
		c.expectRequests(testkit.WatchLists, 1, "WatchLists")
	})
}

// Changes do not replace the missing end of a WatchList.
func TestWatchListOfChanges(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a")
		c.follow(pods, nil)
		for range 25 {
			c.later(5 * time.Second)
			c.Update("shop/a", nil)
		}
		c.later(time.Second)
		if !c.refl.Status().Synced {
			t.Error("not synced after two minutes of changes")
		}
	})
}

// A plain bookmark shows that the end was lost.
func TestWatchListSwallowedEnd(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a")
		c.follow(pods, nil)
		c.Streams.Bookmark()
		c.expect("begin initial", "replace shop/a@98", "begin initial", "replace shop/a@98",
			"end 98")
	})
}

// A WatchList that breaks off is tried three times.
func TestWatchListBrokenOff(t *testing.T) {
	for name, breakOff := range map[string]func(*cluster){
		"closed": func(c *cluster) { c.Streams.Close() },
		"cut":    func(c *cluster) { c.Streams.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.SetFeatures(testkit.Features{NoInitialEnd: true})
				c.follow(pods, nil)
				for range 3 {
					breakOff(c)
					c.later(7 * time.Second)
				}
				c.expect("begin initial", "begin initial", "begin initial", "begin initial",
					"end 97")
				c.expectRequests(testkit.WatchLists, 3, "WatchLists")
			})
		})
	}
}

// Behind the end they would be covered by the list's version: a crash, or a pause while there is no
// room for them, would lose them.
func TestWatchListDeletes(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a", "shop/b", "shop/c")
		c.follow(pods, nil)
		c.Delete("shop/b")
		c.Delete("shop/a")
		c.Update("shop/c", nil)
		c.Create("shop/b", nil) // lives again
		synctest.Wait()
		c.Streams.InitialEnd()
		c.expect("begin initial", "replace shop/a@98", "replace shop/b@99", "replace shop/c@100",
			"delete shop/b@101", "delete shop/a@102", "replace shop/c@103", "replace shop/b@104",
			"end 104")
		if got := c.refl.Status().Version; got != "104" {
			t.Errorf("Version = %s", got)
		}
	})
}

// A list is made again when a pause meets its deletes.
func TestWatchListPause(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a", "shop/b")
		c.follow(pods, nil)
		c.store.set(func(s *recorder) { s.block = make(chan struct{}) }) // there is no room
		c.Delete("shop/a")
		synctest.Wait()
		c.Streams.InitialEnd()
		c.refl.Pause()
		c.later(time.Second)
		c.store.set(func(s *recorder) { s.block = nil })
		c.SetFeatures(testkit.Features{})
		c.refl.Resume()
		c.later(time.Second)
		c.expect("begin initial", "replace shop/a@98", "replace shop/b@99", "begin initial",
			"replace shop/b@99", "end 100")
	})
}

// A server that was rewound behind a delete within a list is noticed.
func TestRewindAfterListDelete(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a")
		backup := c.Version()
		c.follow(pods, nil)
		c.Delete("shop/a")
		c.expect("begin initial", "replace shop/a@98", "delete shop/a@99")
		c.SetFeatures(testkit.Features{})
		c.Rewind(backup)
		c.later(10 * time.Second)
		c.expect("begin initial rewound", "replace shop/a@98", "end 98")
	})
}

// What does not match is handed on by its name, wherever it is met: in a list, before its end, and
// in the watch.
func TestUnselectedObjects(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		named := func(app string) func(map[string]any) {
			return func(obj map[string]any) { obj["metadata"].(map[string]any)["labels"] = map[string]any{"app": app} }
		}
		c.Create("shop/a", named("web"))
		c.Create("shop/b", named("web"))
		c.Create("shop/c", named("db"))
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.Matches = func(obj *resource.Object) bool { return obj.Labels().Get("app") == "web" }
		})
		c.Update("shop/a", named("db"))
		c.Delete("shop/a")
		c.Delete("shop/b")
		synctest.Wait()
		c.Streams.InitialEnd()
		c.Update("shop/c", named("web"))
		c.Update("shop/c", named("db"))
		c.Delete("shop/c")
		c.Create("shop/d", named("db"))
		c.expect("begin initial", "replace shop/a@98", "replace shop/b@99",
			"left shop/c@100",
			"left shop/a@101", "gone shop/a@102", "delete shop/b@103", "end 103",
			"update shop/c@104", "left shop/c@105", "gone shop/c@106", "left shop/d@107")
		if got := c.refl.Status().Version; got != "107" {
			t.Errorf("Version = %s", got)
		}
	})
}

// A WatchList that fails with 410, 429 or 500 is tried again.
func TestWatchListStatusCodes(t *testing.T) {
	tests := []struct {
		name   string
		code   int
		reason metav1.StatusReason
		event  bool
	}{
		{"410 as answer", http.StatusGone, metav1.StatusReasonExpired, false},
		{"410 as event", http.StatusGone, metav1.StatusReasonGone, true},
		{"410 as event, without a reason", http.StatusGone, "", true},
		{"429 as answer", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, false},
		{"429 as event", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, true},
		{"500 as answer", http.StatusInternalServerError, metav1.StatusReasonInternalError, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				want := []string{"begin initial", "replace shop/a@98", "end 98"}
				if tt.event {
					c.SetFeatures(testkit.Features{NoInitialEnd: true})
					want = append([]string{"begin initial", "replace shop/a@98"}, want...)
				} else {
					c.Faults.Refuse(testkit.WatchLists, 1, tt.code, tt.reason)
				}
				c.follow(pods, nil)
				if tt.event {
					c.SetFeatures(testkit.Features{})
					c.Streams.Error(testkit.NewStatus(tt.code, tt.reason))
				}
				c.later(5 * time.Second)
				c.expect(want...)
				c.expectRequests(testkit.WatchLists, 2, "WatchLists")
				c.expectRequests(testkit.Lists, 0, "lists")
			})
		})
	}
}

// WatchList can be disabled.
func TestWatchListDisabled(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, func(cfg *reflector.Config) { cfg.DisableWatchList = true })
		c.expect("begin initial", "end 97")
		c.expectRequests(testkit.WatchLists, 0, "WatchLists")
	})
}
