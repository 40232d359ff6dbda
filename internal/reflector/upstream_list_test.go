package reflector_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A too large version is recognized by what servers say of it.
// As TestReflectorFullListIfTooLarge: what servers of different age say of a version from their
// future.
func TestTooLargeVersion(t *testing.T) {
	const known = "Too large resource version"
	tests := []struct {
		name    string
		message string
		causes  []metav1.StatusCause
		since   []string // what the lists ask to be not older than
	}{
		{
			"by its cause, from 1.18.6 on",
			"wait",
			[]metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}},
			[]string{"98", "-"},
		},
		{
			"by the message of its cause, from 1.17.0 on",
			"wait",
			[]metav1.StatusCause{{Message: known}},
			[]string{"98", "-"},
		},
		{
			"by its message, before", "Timeout: " + known + ": 98, current: 97", nil,
			[]string{"98", "-"},
		},
		{
			"not by being a timeout", "wait",
			[]metav1.StatusCause{{Message: "etcd is slow"}},
			[]string{"98", "98"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				saved := c.Version()
				c.create("shop/a")
				c.Expire()
				status := testkit.NewStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
				status.Message = tt.message
				status.Details = &metav1.StatusDetails{Causes: tt.causes}
				c.Faults.RefuseWith(testkit.Lists, 1, status)
				c.follow(pods, func(cfg *reflector.Config) {
					cfg.From = saved
					cfg.DisableWatchList = true
				})
				c.later(10 * time.Second)
				c.expect("begin expired 97..98", "replace shop/a@98", "end 98")
				if got := c.sinceOf(); strings.Join(got, " ") != strings.Join(tt.since, " ") {
					t.Errorf("lists not older than %q, want %q", got, tt.since)
				}
			})
		})
	}
}

// A later page is requested by its token alone.
// As the cases of TestListPager_List with a resourceVersion: a token holds the version, and has
// no other.
func TestPageToken(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		saved := c.Version()
		c.create("shop/a", "shop/b", "shop/c", "shop/d", "shop/e")
		c.Expire()
		c.follow(pods, func(cfg *reflector.Config) {
			paged(2)(cfg)
			cfg.From = saved
		})
		c.later(5 * time.Second)
		lists := c.Requests(testkit.Lists)
		if len(lists) != 3 {
			t.Fatalf("%d pages, want 3", len(lists))
		}
		for i, r := range lists {
			q, first := r.Query, i == 0
			if (q.Get("resourceVersion") == "102") != first ||
				(q.Get("resourceVersionMatch") == "NotOlderThan") != first ||
				q.Has("resourceVersion") != first || q.Has("continue") == first ||
				q.Get("limit") != "2" {
				t.Errorf("page %d: %v", i, q)
			}
		}
	})
}

// Answers may be larger than a page.
// As TestReflectorNotPaginatingNotConsistentReads and
// TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled: a server that answers from its
// cache may not care for the limit.
func TestOversizePage(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		var items, want []string
		for i := range 10 {
			items = append(items, item(fmt.Sprint("a", i), "98"))
			want = append(want, fmt.Sprintf("replace a%d@98", i))
		}
		c.Faults.Answer(testkit.Lists, 1, page("98", "", "["+strings.Join(items, ",")+"]"))
		c.Skip(1)
		c.follow(pods, paged(4))
		c.expect(append(append([]string{"begin initial"}, want...), "end 98")...)
		c.expectRequests(testkit.Lists, 1, "lists")
	})
}

// A cancel within a list ends Run, and is not the end of the list.
// As the case of TestListPager_EachListItem that cancels.
func TestCancelInList(t *testing.T) {
	for name, watchList := range map[string]bool{"of pages": false, "of a WatchList": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a", "shop/b", "shop/c")
				ctx, cancel := context.WithCancel(t.Context())
				c.store.fail = func(call string) error {
					if call == "replace shop/b@99" {
						cancel()
						return ctx.Err()
					}
					return nil
				}
				r, err := reflector.New(reflector.Config{
					Client: &reflector.Client{
						HTTP: c.HTTP(),
						Base: c.URL(),
					}, Store: c.store, Type: pods,
					Snapshot: true, Limits: reflector.Limits{DisableWatchList: !watchList},
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
				c.expect("begin initial", "replace shop/a@98")
				if got := r.Status(); got.Synced || got.Version != "" {
					t.Errorf("Status = %+v", got)
				}
			})
		})
	}
}

// As TestReflectorListExtract: an object that is kept does not keep those that came with it.
func TestObjectMemory(t *testing.T) {
	for name, watchList := range map[string]bool{"in a page": false, "in a WatchList": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				const objects, kept = 300, 75
				c := newCluster(t, pods)
				for i := range objects {
					c.create(resource.MakeKey("shop", fmt.Sprintf("pod-%03d", i)))
				}
				c.follow(pods, func(cfg *reflector.Config) { cfg.DisableWatchList = !watchList })
				c.store.mu.Lock()
				defer c.store.mu.Unlock()
				var bytes []weak.Pointer[byte]
				for _, obj := range c.store.objects {
					bytes = append(bytes, weak.Make(unsafe.SliceData(obj.Raw)))
				}
				one := c.store.objects[kept]
				c.store.objects = nil
				runtime.GC()
				left := 0
				for i, b := range bytes {
					if i != kept && b.Value() != nil {
						left++
					}
				}
				if left > 0 || len(bytes) != objects || one.Name != "pod-075" {
					t.Errorf("%s keeps the bytes of %d of %d others", one.Name, left, len(bytes)-1)
				}
			})
		})
	}
}

// As TestReflectorDataConsistencyDetector and TestReflectorRespectStoreTransformer: an object is
// the same on whatever road it came, and cut alike.
func TestSameObjectEverywhere(t *testing.T) {
	for _, typ := range []resource.Type{pods, widgets} {
		t.Run(typ.String(), func(t *testing.T) {
			roads := map[string]string{}
			for road, change := range map[string]func(*reflector.Config){
				"pages":     func(cfg *reflector.Config) { cfg.DisableWatchList = true },
				"WatchList": nil,
				"watch":     func(cfg *reflector.Config) { cfg.From = "97" },
			} {
				run(t, func(t *testing.T) {
					c := newCluster(t, typ)
					c.Create("shop/a",
						func(o map[string]any) {
							o["spec"] = map[string]any{"x": []any{
								1,
								"ü", nil,
							}}
						})
					c.follow(typ, change)
					roads[road] = string(c.store.last().Raw)
				})
			}
			for road, raw := range roads {
				if raw != roads["watch"] || strings.Contains(raw, "managedFields") ||
					!strings.Contains(raw, `"ü"`) {
					t.Errorf("by %s:\n%s\nby watch:\n%s", road, raw, roads["watch"])
				}
			}
		})
	}
}

// As TestWatchListResourceVersion: the initial events are in no order, and none of them is a
// position.
func TestWatchListVersion(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/b", "shop/a")
		c.follow(pods, nil)
		c.expect("begin initial", "replace shop/a@99", "replace shop/b@98")
		if got := c.refl.Status(); got.Version != "" || got.Synced ||
			got.Phase != reflector.Listing {
			t.Errorf("Status = %+v before the end", got)
		}
		c.Skip(5)
		c.Streams.InitialEnd()
		c.expect("end 104")
		if got := c.refl.Status(); got.Version != "104" || !got.Synced ||
			got.Phase != reflector.Watching {
			t.Errorf("Status = %+v after the end", got)
		}
	})
}

// A bookmark ends the initial events only if it says so.
// As the case of TestWatchList that looks at the annotation's value.
func TestWatchListBookmark(t *testing.T) {
	for _, value := range []string{`"false"`, `""`, `"True"`} {
		t.Run(value, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.SetFeatures(testkit.Features{NoInitialEnd: true})
				c.create("shop/a")
				c.follow(pods, nil)
				c.Streams.Raw(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"98","annotations":{"k8s.io/initial-events-end":` + value + `}}}}`)
				synctest.Wait()
				calls := c.store.take()
				if len(calls) < 3 || calls[2] == "end 98" {
					t.Errorf("the store got %q", calls)
				}
				c.expectRequests(testkit.Lists, 1, "lists in place of the WatchList")
			})
		})
	}
}

// Plain watches follow a WatchList.
// As the cases of TestWatchList in which a watch ends after the initial events.
func TestWatchListThenWatch(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, nil)
		c.create("shop/b")
		c.later(2 * time.Second)
		c.Streams.Close()
		c.later(time.Second)
		c.create("shop/c")
		c.expect("begin initial", "replace shop/a@98", "end 98", "add shop/b@99", "add shop/c@100")
		watches := c.Requests(testkit.Watches)
		if len(watches) != 2 {
			t.Fatalf("%d watches, want 2", len(watches))
		}
		q := watches[1].Query
		if q.Has("sendInitialEvents") || q.Has("resourceVersionMatch") ||
			q.Get("resourceVersion") == "" || q.Get("allowWatchBookmarks") != "true" {
			t.Errorf("the second watch asks for %v", q)
		}
	})
}

// A WatchList that always fails is replaced by pages.
// As the case of TestWatchList in which any error forces the fallback. A server may fail at what it
// does not know with any status.
func TestWatchListFallback(t *testing.T) {
	tests := map[string]func(*cluster){
		"401": func(c *cluster) {
			c.Faults.Refuse(testkit.WatchLists, -1, 401,
				metav1.StatusReasonUnauthorized)
		},
		"404": func(c *cluster) {
			c.Faults.Refuse(testkit.WatchLists, -1, 404,
				metav1.StatusReasonNotFound)
		},
		"406": func(c *cluster) {
			c.Faults.Refuse(testkit.WatchLists, -1, 406,
				metav1.StatusReasonNotAcceptable)
		},
		"500": func(c *cluster) {
			c.Faults.Refuse(testkit.WatchLists, -1, 500,
				metav1.StatusReasonInternalError)
		},
		"504": func(c *cluster) {
			c.Faults.Refuse(testkit.WatchLists, -1, 504,
				metav1.StatusReasonTimeout)
		},
		"a cut connection": func(c *cluster) { c.Faults.Break(testkit.WatchLists, -1) },
		"a login page": func(c *cluster) {
			c.Faults.Answer(testkit.WatchLists, -1, func(w http.ResponseWriter,
				_ *http.Request,
			) {
				fmt.Fprint(w, "<html>log in")
			})
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				fault(c)
				c.follow(pods, nil)
				c.later(30 * time.Second)
				c.expect("begin initial", "replace shop/a@98", "end 98")
				c.expectAttempts(testkit.WatchLists, 3, "WatchLists")
				c.create("shop/b")
				c.expect("add shop/b@99")

				c.Faults.Heal() // whatever it was is over: the next list tries again
				c.later(3 * time.Minute)
				c.expireNow()
				c.later(10 * time.Second)
				c.expect("begin expired 99..100", "replace shop/a@98", "replace shop/b@99",
					"end 100")
				c.expectAttempts(testkit.WatchLists, 4, "WatchLists")
			})
		})
	}
}

// A list may have any number of pages.
// As the cases of TestListPager_List and TestListPager_EachListItem by number of pages.
func TestNumberOfPages(t *testing.T) {
	const size = 10
	for objects, pages := range map[int]int{0: 1, 9: 1, 10: 1, 11: 2, 20: 2, 21: 3} {
		t.Run(fmt.Sprint(objects, " objects"), func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, widgets)
				for i := range objects {
					c.create(resource.MakeKey("shop", fmt.Sprint("a", i)))
				}
				c.follow(widgets, paged(size))
				if got := c.refl.Status(); !got.Synced || got.Items != objects ||
					got.Version != c.Version() || len(c.store.objects) != objects {
					t.Errorf("Status = %+v with %d objects", got, len(c.store.objects))
				}
				c.expectRequests(testkit.Lists, pages, "pages")
			})
		})
	}
}
