package reflector_test

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A server that was rewound is listed again.
func TestRewind(t *testing.T) {
	t.Run("while the reflector was down", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.create("shop/a")
			c.follow(pods, c.from("500"))
			c.expect("begin rewound 500..98 rewound", "replace shop/a@98", "end 98")
		})
	})
	t.Run("while it was watching", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := watchedTo100(t)
			c.Rewind("98")
			c.later(time.Minute)
			c.expect("begin rewound 100..98 rewound", "replace shop/a@98", "end 98")
		})
	})
	t.Run("after it had ended the watch in good order", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := watchedTo100(t)
			c.Faults.Wrap(func(testkit.Request) bool { return true }, 1,
				func(h http.Handler) http.Handler { c.Rewind("98"); return h })
			c.Streams.Close()
			c.later(time.Minute)
			c.expect("begin rewound 100..98 rewound", "replace shop/a@98", "end 98")
		})
	})
	for answer, code := range map[string]int{
		"closed the watch at once": http.StatusOK, "did not know who asks": http.StatusUnauthorized, "had no roles yet": http.StatusForbidden,
		"did not serve the resource yet": http.StatusNotFound, "had too much to do": http.StatusTooManyRequests,
	} {
		t.Run("and "+answer, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := watchedTo100(t)
				c.Faults.Answer(testkit.Watches, 1, func(w http.ResponseWriter, _ *http.Request) {
					c.Rewind("98")
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(code)
				})
				c.Streams.Cut()
				c.later(time.Minute)
				c.expect("begin rewound 100..98 rewound", "replace shop/a@98", "end 98")
			})
		})
	}
	t.Run("while it was listing", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.create("shop/a", "shop/b")
			saved := c.Version()
			c.Skip(1)
			c.Expire() // and with it what Rewind would undo
			c.Skip(1)
			c.Faults.Refuse(testkit.Lists, 1, http.StatusServiceUnavailable,
				metav1.StatusReasonServiceUnavailable)
			c.follow(pods, func(cfg *reflector.Config) {
				cfg.From = saved
				cfg.DisableWatchList = true
			})
			c.later(500 * time.Millisecond) // less than the pause after the refusal
			c.Rewind("98")
			c.later(time.Minute)
			c.expect("begin rewound 99..98 rewound", "replace shop/a@98", "replace shop/b@99",
				"end 98")
		})
	})
}

// The API server before a restore answers the probe, and the one after it takes the watch, which is
// silent. The clock shows that the history went back.
func TestRewindBetweenProbeAndWatch(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a", "shop/b", "shop/c")
		clock := reflector.NewClock(nil, func([]byte) error { return nil }, slog.New(slog.DiscardHandler))
		go func() { _ = clock.Run(t.Context()) }()
		c.follow(pods, func(cfg *reflector.Config) { cfg.From, cfg.Client.Clock = c.Version(), clock })
		c.later(time.Minute)
		c.Faults.Wrap(testkit.Watches, 1, func(h http.Handler) http.Handler { c.Rewind("98"); return h })
		c.Streams.Close()
		c.later(2 * reflector.ClockPeriod)
		c.expect("begin rewound 100..98 rewound", "replace shop/a@98", "end 98")
	})
}

// Each restore of etcd is found at once, however many there were.
func TestRewindAgain(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		for i := range 10 {
			c.create("shop/b")
			c.later(10 * time.Second)
			_ = c.store.take()
			c.Faults.Refuse(testkit.Probes, 1, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
			c.Rewind("98")
			c.later(2 * time.Second) // after one refusal
			if got := c.store.take(); len(got) != 3 || got[0] != "begin rewound 99..98 rewound" {
				t.Fatalf("restore %d: the store got %q", i+1, got)
			}
		}
	})
}

// An aggregated API server may give its lists a lower version than their items have. It is listed
// again less and less often.
func TestListBelowItems(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		item := func(name, version string) string {
			return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"shop","uid":"` + name + `","resourceVersion":"` + version + `"}}`
		}
		answer := func(body string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			}
		}
		const ever = 1 << 20
		c.Faults.Answer(testkit.Lists, ever, answer(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"50"},"items":[`+item("a", "100")+`,`+item("b", "101")+`]}`))
		c.Faults.Answer(testkit.Watches, ever, answer(`{"type":"ADDED","object":`+item("a", "100")+`}{"type":"ADDED","object":`+item("b", "101")+`}`))
		c.follow(pods, func(cfg *reflector.Config) { cfg.DisableWatchList = true })
		lists := func() int { return len(c.Requests(testkit.Lists)) }
		c.later(10 * time.Minute)
		before := lists()
		c.later(10 * time.Minute)
		if n := lists() - before; n == 0 || n > 60 {
			t.Errorf("%d lists and probes in ten minutes, want 1 to 60", n)
		}
	})
}

// watchedTo100 is a cluster of which all is known up to version 100.
func watchedTo100(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, pods)
	c.create("shop/a", "shop/b")
	c.follow(pods, c.from(c.Version()))
	c.create("shop/c")
	c.expect("add shop/c@100")
	c.later(time.Minute)
	return c
}

// After an expired version, the list is not older than the server.
func TestExpiredVersion(t *testing.T) {
	for name, watchList := range map[string]bool{"by WatchList": true, "by pages": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				saved := c.Version()
				c.create("shop/a", "shop/b")
				c.Skip(1)
				c.Expire()
				c.follow(pods, func(cfg *reflector.Config) {
					cfg.From = saved
					cfg.DisableWatchList = !watchList
				})
				c.later(5 * time.Second)
				c.create("shop/c")
				c.expect("begin expired 97..100", "replace shop/a@98", "replace shop/b@99",
					"end 100", "add shop/c@101")
				match := testkit.Match(testkit.Lists)
				if watchList {
					match = testkit.WatchLists
				}
				q := c.Requests(match)[0].Query
				if q.Get("resourceVersion") != "100" ||
					q.Get("resourceVersionMatch") != "NotOlderThan" {
					t.Errorf("it asks for %v", q)
				}
				if got := c.metric("relists_total", "expired"); got != 1 {
					t.Errorf("relists_total{expired} = %v", got)
				}
			})
		})
	}
}

// An error event ends the stream.
// As TestReflectorWatchHandler; what follows an ERROR does not count
// (kubernetes/kubernetes#130898).
func TestErrorEvent(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		c.create("shop/b")
		c.expect("add shop/b@99")
		c.Skip(1)
		// In one write: after the first frame the reflector may open the next stream at once.
		c.Streams.Raw(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}` +
			`{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"1000"}}}`)
		c.later(time.Minute)
		// the first may have been of one event too far back
		c.Streams.Error(testkit.NewStatus(http.StatusGone, ""))
		c.later(time.Minute)
		c.expect("begin expired 99..100", "replace shop/a@98", "replace shop/b@99", "end 100")
	})
}

// Watches from one version that close empty mean that the version expired.
func TestEmptyCloses(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		saved := c.Version()
		c.create("shop/a")
		c.Skip(1)
		c.Expire()
		c.SetFeatures(testkit.Features{EmptyWhenExpired: true})
		c.follow(pods, c.from(saved))
		c.later(3 * time.Minute)
		c.expect("begin expired 97..99", "replace shop/a@98", "end 99")
		plain := func(r testkit.Request) bool {
			return testkit.Watches(r) &&
				!testkit.WatchLists(r)
		}
		c.expectRequests(plain, 5, "watches before the gap was suspected")
	})
}

// Watches that close empty where nothing happened are no gap.
func TestEmptyClosesWhenIdle(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Answer(testkit.Watches, 12, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
		})
		c.follow(pods, c.from(c.Version()))
		c.later(time.Hour)
		c.create("shop/a")
		c.expect("add shop/a@98")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// A server that lags is listed consistently.
// As TestReflectorFullListIfTooLarge.
func TestLaggingServer(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		saved := c.Version()
		c.create("shop/a")
		c.Expire()
		tooLarge := testkit.NewStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		tooLarge.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
		c.Faults.RefuseWith(testkit.Lists, 1, tooLarge)
		c.follow(pods, func(cfg *reflector.Config) { cfg.From, cfg.DisableWatchList = saved, true })
		c.later(10 * time.Second)
		c.expect("begin expired 97..98", "replace shop/a@98", "end 98")
		lists := c.Requests(testkit.Lists)
		if len(lists) != 2 || lists[0].Query.Get("resourceVersion") != "98" ||
			lists[1].Query.Has("resourceVersion") {
			t.Errorf("lists: %v", lists)
		}
		c.expectRequests(testkit.Probes, 3, "probes")
	})
}

// A busy server is left alone as long as it asks.
// As TestBackoffOnTooManyRequests and TestNoRelistOnTooManyRequests.
func TestBusyServerRetryAfter(t *testing.T) {
	t.Run("as answer", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.Faults.RefuseBusy(testkit.Watches, 1, 40*time.Second)
			c.follow(pods, c.from(c.Version()))
			c.create("shop/a")
			c.later(39 * time.Second)
			c.expect()
			c.later(2 * time.Second)
			c.expect("add shop/a@98")
			c.expectRequests(testkit.Lists, 0, "lists")
		})
	})
	t.Run("as event", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.follow(pods, c.from(c.Version()))
			busy := testkit.NewStatus(http.StatusTooManyRequests,
				metav1.StatusReasonTooManyRequests)
			busy.Details = &metav1.StatusDetails{RetryAfterSeconds: 40}
			c.Streams.Error(busy)
			synctest.Wait()
			c.create("shop/a")
			c.later(39 * time.Second)
			c.expect()
			c.later(2 * time.Second)
			c.expect("add shop/a@98")
			c.expectRequests(testkit.Lists, 0, "lists")
		})
	})
}

// A broken connection is tried again at growing intervals.
// As TestReflectorListAndWatchInitConnBackoff and TestNewReflectorWithCustomBackoff.
func TestConnectionBackoff(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Break(testkit.Any, -1)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.Backoff = reflector.Backoff{Initial: time.Second, Max: 10 * time.Second, Jitter: -1}
		})
		c.later(40 * time.Second)
		requests := c.Requests(testkit.Any)
		want := []time.Duration{1, 2, 4, 8, 10, 10}
		if len(requests) != len(want)+1 {
			t.Fatalf("%d requests, want %d", len(requests), len(want)+1)
		}
		for i := range want {
			if got := requests[i+1].Time.Sub(requests[i].Time); got != want[i]*time.Second {
				t.Errorf("wait %d: %s, want %ds", i, got, want[i])
			}
		}
		c.Faults.Heal()
		c.create("shop/a")
		c.later(10 * time.Second)
		c.expect("add shop/a@98")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// The default backoff is that of client-go.
func TestDefaultBackoff(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Break(testkit.Any, -1)
		c.follow(pods, c.from(c.Version()))
		c.later(20 * time.Minute)
		requests := c.Requests(testkit.Any)
		base := 800 * time.Millisecond
		for i := range requests[1:] {
			wait := requests[i+1].Time.Sub(requests[i].Time)
			if wait < base || wait > 2*base {
				t.Errorf("wait %d: %s, want %s to %s", i, wait, base, 2*base)
			}
			base = min(2*base, 30*time.Second)
		}
	})
}

// The backoff starts over after two quiet minutes.
func TestBackoffReset(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Refuse(testkit.Watches, 6, http.StatusServiceUnavailable,
			metav1.StatusReasonServiceUnavailable)
		c.follow(pods, c.from(c.Version()))
		c.later(5 * time.Minute)
		c.Faults.Refuse(testkit.Watches, 1, http.StatusServiceUnavailable,
			metav1.StatusReasonServiceUnavailable)
		c.Streams.Cut()
		synctest.Wait()
		c.create("shop/a")
		c.later(1601 * time.Millisecond)
		c.expect("add shop/a@98")
	})
}

// A refused list is no empty collection.
func TestRefusedList(t *testing.T) {
	for code, reason := range map[int]metav1.StatusReason{
		401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden,
		404: metav1.StatusReasonNotFound,
		500: metav1.StatusReasonInternalError, 503: metav1.StatusReasonServiceUnavailable,
	} {
		t.Run(string(reason), func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				c.follow(pods, nil)
				c.expect("begin initial", "replace shop/a@98", "end 98")
				c.Faults.Refuse(testkit.Any, -1, code, reason)
				c.expireNow()
				c.later(10 * time.Minute)
				c.expect()
				if got := c.refl.Status(); got.Phase != reflector.BackingOff ||
					got.LastError == "" || got.Version != "98" {
					t.Errorf("Status = %+v", got)
				}
				c.Faults.Heal()
				c.later(2 * time.Minute)
				c.expect("begin expired 98..99", "replace shop/a@98", "end 99")
				if got := c.refl.Status(); got.LastError != "" {
					t.Errorf("LastError = %s", got.LastError)
				}
			})
		})
	}
}

// A refused watch is not listed.
func TestRefusedWatch(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Refuse(testkit.Watches, 20, http.StatusInternalServerError,
			metav1.StatusReasonInternalError)
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		c.later(20 * time.Minute)
		c.expect("add shop/a@98")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// An internal error is tried again from the same version.
// As TestRetryInternalError.
func TestInternalError(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		for range 4 {
			c.Streams.Error(testkit.NewStatus(http.StatusInternalServerError,
				metav1.StatusReasonInternalError))
			c.later(20 * time.Second)
		}
		c.create("shop/b")
		c.expect("add shop/a@98", "add shop/b@99")
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// An internal error that comes back leads to a list.
func TestRepeatedInternalError(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		for range 5 {
			c.Streams.Error(testkit.NewStatus(http.StatusInternalServerError,
				metav1.StatusReasonInternalError))
			c.later(time.Minute)
		}
		c.expect("begin unreadable 98..98", "replace shop/a@98", "end 98")
	})
}

// A storage read error leads to a list.
// As TestReflectorReplacesStoreOnUnsafeDelete: the deletion of a corrupt object is only reported as
// an error.
func TestStorageReadError(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		c.Skip(1)
		c.Streams.Error(testkit.NewStatus(http.StatusInternalServerError,
			metav1.StatusReasonStoreReadError))
		c.later(2 * time.Second)
		c.expect("begin unreadable 98..99", "replace shop/a@98", "end 99")
	})
}

// A quiet resource is not listed because the version before its last event expired.
func TestExpiryAfterOneEvent(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		synctest.Wait()
		c.Expire() // 97, from which the watch would continue to be sure of all of 98
		c.later(2 * time.Second)
		c.Streams.Cut()
		c.later(2 * time.Second)
		c.create("shop/b")
		c.later(2 * time.Second)
		c.expect("add shop/a@98", "add shop/b@99")
		c.expectRequests(testkit.WatchLists, 0, "WatchLists")
	})
}

// A deletion is not taken for all events of its version.
func TestExpiryAfterDeletion(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		c.Delete("shop/a")
		synctest.Wait()
		c.Expire()
		c.later(2 * time.Second)
		c.Streams.Cut()
		c.later(5 * time.Second)
		c.expect("delete shop/a@99", "begin expired 99..99", "end 99")
	})
}

// What the version clock is asked to leave alone, the Reflector leaves alone too, and the other way
// round.
func TestBusyServerClock(t *testing.T) {
	for _, of := range []struct {
		name   string
		refuse testkit.Match
	}{{"a probe of the clock", testkit.Probes}, {"a watch", testkit.Watches}} {
		t.Run(of.name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				save := func([]byte) error { return nil }
				clock := reflector.NewClock(nil, save, slog.New(slog.DiscardHandler))
				go func() { _ = clock.Run(t.Context()) }()
				c.follow(pods, func(cfg *reflector.Config) { cfg.Client.Clock = clock })
				c.Faults.RefuseBusy(of.refuse, 1, 40*time.Second)
				c.later(reflector.ClockPeriod - time.Second)
				if of.name == "a watch" {
					c.Streams.Cut()
				}
				c.later(2 * time.Second)
				before := len(c.Requests(testkit.Any))
				c.Streams.Cut()
				c.later(36 * time.Second)
				if n := len(c.Requests(testkit.Any)) - before; n != 0 {
					t.Errorf("%d requests of a server that wants to be left alone", n)
				}
				c.create("shop/a")
				c.later(10 * time.Second)
				if n := len(c.Requests(testkit.Probes)); n == 0 || len(c.Requests(testkit.Any)) <= before {
					t.Errorf("nothing is asked afterwards: %d probes", n)
				}
			})
		})
	}
}

// A server without bookmarks, as for Events, forgets the version of a watch that brings nothing.
// The next list says that the watch was open until then.
func TestQuietVersionExpires(t *testing.T) {
	for name, features := range map[string]testkit.Features{"with 410": {}, "closed at once": {EmptyWhenExpired: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.SetFeatures(features)
				c.create("shop/a")
				c.follow(pods, c.from(c.Version()))
				c.later(time.Minute)
				c.expect()
				c.Skip(5)
				c.Expire()
				c.later(11 * time.Minute) // longer than a watch
				c.expect("begin expired 98..103 quiet", "replace shop/a@98", "end 103")
				if n := len(c.Requests(testkit.Watches)); n > 5 {
					t.Errorf("%d watches", n)
				}
			})
		})
	}
	t.Run("after a list, again and again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.create("shop/a")
			c.follow(pods, func(cfg *reflector.Config) { cfg.Snapshot = true })
			c.later(time.Minute)
			c.expect("begin initial", "replace shop/a@98", "end 98")
			for range 2 {
				c.Skip(5)
				c.Expire()
				c.later(11 * time.Minute)
			}
			c.expect("begin expired 98..103 quiet", "replace shop/a@98", "end 103",
				"begin expired 103..108 quiet", "replace shop/a@98", "end 108")
		})
	})
	t.Run("after an event", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.follow(pods, c.from(c.Version()))
			c.later(time.Minute)
			c.create("shop/a")
			c.later(time.Minute)
			c.Skip(5)
			c.Expire()
			c.later(11 * time.Minute)
			c.expect("add shop/a@98", "begin expired 98..103 quiet", "replace shop/a@98", "end 103")
		})
	})
	t.Run("after a connection that was lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.create("shop/a")
			c.follow(pods, c.from(c.Version()))
			c.later(time.Minute)
			c.Skip(5)
			c.Expire()
			c.Streams.Cut()
			c.later(time.Minute)
			c.expect("begin expired 98..103", "replace shop/a@98", "end 103")
		})
	})
}
