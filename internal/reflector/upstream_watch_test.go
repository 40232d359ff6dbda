package reflector_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Cases of client-go's tests that no other test here has. docs/testdata/upstream_cases.txt has all.

// Nothing is requested when the context has ended.
// As TestReflectorWatchStoppedBefore and TestReflectorHandleWatchStoppedBefore.
func TestEndedContext(t *testing.T) {
	for name, change := range map[string]func(*reflector.Config){
		"for a snapshot": func(cfg *reflector.Config) { cfg.Snapshot = true },
		"for pages": func(cfg *reflector.Config) {
			cfg.Snapshot = true
			cfg.DisableWatchList = true
		},
		"for changes": func(cfg *reflector.Config) { cfg.From = "97" },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				cfg := reflector.Config{
					Client: &reflector.Client{HTTP: c.HTTP(), Base: c.URL()},
					Store:  c.store, Type: pods,
				}
				change(&cfg)
				r, err := reflector.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := r.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
				c.expect()
				c.expectRequests(testkit.Any, 0, "requests")
			})
		})
	}
}

// As TestReflectorResourceVersionUpdate: every event moves the version, deletions and bookmarks
// too.
func TestEventVersions(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, nil)
		for _, step := range []struct {
			what string
			do   func()
		}{
			{"the list", func() {}},
			{"an addition", func() { c.Create("shop/a", nil) }},
			{"an update", func() { c.Skip(10); c.Update("shop/a", nil) }},
			{"a bookmark", func() { c.Skip(10); c.Streams.Bookmark() }},
			{"a deletion", func() { c.Skip(10); c.Delete("shop/a") }},
		} {
			step.do()
			synctest.Wait()
			if got := c.refl.Status().Version; got != c.Version() {
				t.Errorf("Version = %s after %s, want %s", got, step.what, c.Version())
			}
		}
	})
}

// As the cases of TestRetryWatcher that survive closed watches: each watch continues where the one
// before ended, wherever the versions are.
func TestManyWatches(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.expect()
		for i := range 4 {
			c.later(10 * time.Second)
			c.Streams.Close()
			c.Create("shop/a", nil) // while one watch ends and the next is not open
			c.later(time.Second)
			c.Skip(int64(1 + 100*i))
			c.Create("shop/b", nil)
			c.expect(fmt.Sprintf("%s shop/a@%d", verb(i), versions[i][0]),
				fmt.Sprintf("%s shop/b@%d", verb(i), versions[i][1]))
		}
		c.expectRequests(testkit.Watches, 5, "watches")
		c.expectRequests(testkit.Lists, 0, "lists")
		c.expectRequests(testkit.Probes, 5, "probes: an end before its time may be that of a "+
			"server with another history")
	})
}

// versions of a and b in TestManyWatches.
var versions = [][2]int{{98, 100}, {101, 203}, {204, 406}, {407, 709}}

func verb(i int) string {
	if i == 0 {
		return "add"
	}
	return "update"
}

// Any error event ends the watch, and the next one continues.
// As TestCloseWatchChannelOnError and the cases of TestRetryWatcher that recover from an error
// within the stream.
func TestWatchAfterErrorEvent(t *testing.T) {
	tests := map[string]string{
		"a timeout":                      `{"kind":"Status","status":"Failure","reason":"Timeout","code":504}`,
		"an internal error":              `{"kind":"Status","status":"Failure","reason":"InternalError","code":500}`,
		"a code that nobody knows":       `{"kind":"Status","status":"Failure","code":666}`,
		"a reason that nobody knows":     `{"kind":"Status","status":"Failure","reason":"Moonshine"}`,
		"an object in place of a status": `{"kind":"Pod","metadata":{"name":"x","resourceVersion":"1000"}}`,
	}
	for name, object := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				c.follow(pods, c.from(c.Version()))
				c.create("shop/b")
				synctest.Wait()
				c.Streams.Raw(`{"type":"ERROR","object":` + object + `}`)
				synctest.Wait()
				if got := c.Streams.Count(); got != 0 {
					t.Errorf("%d watches are open after the error", got)
				}
				c.create("shop/c")
				c.later(2 * time.Second)
				c.expect("add shop/b@99", "add shop/c@100")
				if got := c.Streams.Count(); got != 1 {
					t.Errorf("%d watches are open", got)
				}
				c.expectRequests(testkit.Lists, 0, "lists")
				if len(c.store.quarantined) != 0 {
					t.Errorf("quarantined: %q", c.store.quarantined)
				}
			})
		})
	}
}

// As TestNoRelistOnTooManyRequests.
func TestBusyServer(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Refuse(testkit.Watches, 12, http.StatusTooManyRequests,
			metav1.StatusReasonTooManyRequests)
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		c.later(20 * time.Minute)
		c.expect("add shop/a@98")
		c.expectRequests(testkit.Lists, 0, "lists")
		c.expectRequests(testkit.WatchLists, 0, "WatchLists")
		if got := c.metric("errors_total", "too-many-requests"); got != 12 {
			t.Errorf("errors_total{too-many-requests} = %v", got)
		}
	})
}

// As the last case of TestRetryInternalError: what went well in between starts the count over.
func TestErrorCountReset(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		for _, key := range []resource.Key{"shop/a", "shop/b", "shop/c"} {
			for range 4 { // a fifth in a row would be a reason to list
				c.Streams.Error(testkit.NewStatus(http.StatusInternalServerError,
					metav1.StatusReasonInternalError))
				c.later(time.Minute)
			}
			c.create(key)
			synctest.Wait()
		}
		c.expect("add shop/a@98", "add shop/b@99", "add shop/c@100")
		c.expectRequests(testkit.Lists, 0, "lists")
		c.expectRequests(testkit.WatchLists, 0, "WatchLists")
	})
}

// The watch timeout is the least time for which a watch asks.
// As TestWatchTimeout.
func TestWatchTimeout(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.WatchTimeout = 30 * time.Minute
		})
		c.later(12 * time.Hour)
		watches := c.Requests(testkit.Watches)
		for _, w := range watches {
			d, err := time.ParseDuration(w.Query.Get("timeoutSeconds") + "s")
			if err != nil || d < 30*time.Minute || d > time.Hour {
				t.Errorf("timeoutSeconds = %s", w.Query.Get("timeoutSeconds"))
			}
		}
		if len(watches) < 12 || len(watches) > 25 {
			t.Errorf("%d watches in twelve hours", len(watches))
		}
	})
}
