package reflector_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func paged(size int) func(*reflector.Config) {
	return func(cfg *reflector.Config) { cfg.DisableWatchList, cfg.PageSize = true, size }
}

// page is a literal list answer.
func page(version, token, items string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q},"items":%s}`, version, token, items)
	}
}

func item(name, version string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q}}`, name, version)
}

// As TestReflectorListAndWatch and TestReflectorWatchListPageSize.
func TestSnapshotPages(t *testing.T) {
	// widgets have their list's metadata behind the items
	for _, typ := range []resource.Type{pods, widgets} {
		t.Run(typ.String(), func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, typ)
				c.create("shop/a", "shop/b", "shop/c", "shop/d", "shop/e")
				c.follow(typ, paged(2))
				c.Update("shop/a", nil)
				c.expect("begin initial", "replace shop/a@98", "replace shop/b@99",
					"replace shop/c@100",
					"replace shop/d@101", "replace shop/e@102", "end 102", "update shop/a@103")
				lists := c.Requests(testkit.Lists)
				for i, r := range lists {
					q := r.Query
					if q.Get("limit") != "2" || q.Has("resourceVersion") ||
						q.Has("resourceVersionMatch") || q.Has("continue") != (i > 0) {
						t.Errorf("page %d: %v", i, q)
					}
				}
				if len(lists) != 3 {
					t.Errorf("%d pages, want 3", len(lists))
				}
				if got := c.refl.Status(); !got.Synced || got.Items != 5 ||
					got.Relists["initial"] != 1 || got.Version != "103" {
					t.Errorf("Status = %+v", got)
				}
				if lists, items := c.metric("lists_total", ""), c.metric("list_items_total",
					""); lists != 1 || items != 5 {
					t.Errorf("lists_total, list_items_total = %v, %v", lists, items)
				}
			})
		})
	}
}

// The page size is 500 by default.
func TestDefaultPageSize(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, paged(0))
		if got := c.Requests(testkit.Lists)[0].Query.Get("limit"); got != "500" {
			t.Errorf("limit = %s", got)
		}
	})
}

// As TestReflectorListExtract: an item of a list looks like an object of a watch.
func TestListItems(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, paged(2))
		listed := string(c.store.last().Raw)
		c.Server.Create("shop/a", nil)
		synctest.Wait()
		watched := string(c.store.last().Raw)
		if want := `{"kind":"Pod","apiVersion":"v1","metadata":{`; listed[:len(want)] != want ||
			watched[:len(want)] != want {
			t.Errorf("listed:  %s\nwatched: %s", listed, watched)
		}
	})
}

// An empty collection is a complete list.
func TestEmptyCollection(t *testing.T) {
	for _, items := range []string{"[]", "null"} {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.Faults.Answer(testkit.Lists, 1, page("97", "", items))
			c.follow(pods, paged(2))
			c.expect("begin initial", "end 97")
		})
	}
}

// A continue token that expired restarts the list.
// As TestReflectorExpiredExactResourceVersion and TestReflectorFullListIfExpired.
func TestExpiredToken(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a", "shop/b", "shop/c")
		c.Faults.Refuse(testkit.Continues, 1, http.StatusGone, "Expired")
		c.follow(pods, paged(2))
		c.later(2 * time.Second)
		c.expect("begin initial", "replace shop/a@98", "replace shop/b@99",
			"begin initial", "replace shop/a@98", "replace shop/b@99", "replace shop/c@100",
			"end 100")
	})
}

// Tokens that always expire end in a list of one page.
func TestAlwaysExpiredTokens(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a", "shop/b", "shop/c")
		c.Faults.Refuse(testkit.Continues, -1, http.StatusGone, "Expired")
		c.follow(pods, paged(2))
		c.later(2 * time.Minute)
		lists := c.Requests(testkit.Lists)
		if last := lists[len(lists)-1].Query; last.Has("limit") || last.Has("resourceVersion") ||
			len(lists) != 9 {
			t.Errorf("after %d lists: %v", len(lists), last)
		}
		if !c.refl.Status().Synced {
			t.Error("not synced")
		}
	})
}

// Pages of different versions make no list.
func TestPageVersions(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Answer(testkit.Continues, 1, page("98", "", "["+item("b", "98")+"]"))
		c.Faults.Answer(testkit.Lists, 1, page("97", "token", "["+item("a", "97")+"]"))
		c.create("shop/c")
		c.follow(pods, paged(2))
		c.later(2 * time.Second)
		c.expect("begin initial", "replace a@97", "replace b@98", "begin initial",
			"replace shop/c@98", "end 98")
	})
}

// A list that breaks off is given up.
func TestBrokenOffList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a", "shop/b")
		c.Faults.CutAfter(testkit.Lists, 1, 500)
		c.follow(pods, paged(0))
		c.later(2 * time.Second)
		c.expect("begin initial", "replace shop/a@98", "begin initial", "replace shop/a@98",
			"replace shop/b@99", "end 99")
		if len(c.store.quarantined) != 0 {
			t.Errorf("quarantined: %q", c.store.quarantined)
		}
	})
}

// A list that hangs is given up.
func TestHangingList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Hang(testkit.Lists, 1)
		c.follow(pods, paged(0))
		c.later(119 * time.Second)
		c.expect()
		c.later(3 * time.Second)
		c.expect("begin initial", "end 97")
	})
}

// Answers that are no list are refused.
// As TestIsUnsupportedTableObject.
func TestAnswersWithoutList(t *testing.T) {
	const meta = `"metadata":{"resourceVersion":"5"}`
	tests := map[string]string{
		"a table": `{"kind":"Table","apiVersion":"meta.k8s.io/v1",` +
			meta + `,"rows":[]}`,
		"a list of metadata":       `{"kind":"PartialObjectMetadataList",` + meta + `,"items":[]}`,
		"a status":                 `{"kind":"Status","status":"Success"}`,
		"no items":                 `{"kind":"PodList",` + meta + `}`,
		"no version":               `{"kind":"PodList","metadata":{},"items":[]}`,
		"items that are an object": `{"kind":"PodList",` + meta + `,"items":{}}`,
		"items of another kind": `{"kind":"PodList",` +
			meta +
			`,"items":[{"kind":"PartialObjectMetadata","metadata":{"name":"a","resourceVersion":"1"}}]}`,
		"a shard":  `{"kind":"PodList","metadata":{"resourceVersion":"5","shardInfo":{"selector":"x"}},"items":[]}`,
		"an array": `[]`,
		"two lists": `{"kind":"PodList",` + meta + `,"items":[]}{"kind":"PodList",` +
			meta + `,"items":[]}`,
		"bad JSON": `{"kind":"PodList",` + meta + `,"items":[{"a":x}]}`,
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.Faults.Answer(testkit.Lists, 1, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(body))
				})
				c.follow(pods, paged(0))
				c.expect("begin initial")
				if got := c.metric("errors_total", "unreadable"); got != 1 ||
					len(c.store.quarantined) != 1 {
					t.Errorf("errors_total{unreadable} = %v, quarantined = %q", got, c.store.quarantined)
				}
				c.later(2 * time.Second)
				c.expect("begin initial", "end 97")
			})
		})
	}
}

// A resource without versions, as servers without storage have, is asked for now and then.
func TestVersionlessList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		const lists = 5
		c.Faults.Answer(testkit.Lists, lists, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"PodList","metadata":{},"items":[]}`))
		})
		c.follow(pods, paged(0))
		c.later(9 * time.Minute)
		if s := c.refl.Status(); !s.Versionless || s.Phase != reflector.BackingOff || len(c.Requests(testkit.Lists)) != 3 {
			t.Errorf("after %d lists: %+v", len(c.Requests(testkit.Lists)), s)
		}
		c.later(30 * time.Minute) // its server is another one
		if s := c.refl.Status(); s.Versionless || !s.Synced {
			t.Errorf("with versions: %+v", s)
		}
	})
}

// A login page is no list.
func TestLoginPage(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Answer(testkit.Any, 1, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte("<html>log in"))
		})
		c.follow(pods, paged(0))
		if got := c.refl.Status(); got.Phase != reflector.BackingOff || got.LastError == "" ||
			got.Synced {
			t.Errorf("Status = %+v", got)
		}
		if got := c.metric("errors_total", "content-type"); got != 1 {
			t.Errorf("errors_total{content-type} = %v", got)
		}
		c.later(2 * time.Second)
		c.expect("begin initial", "end 97")
	})
}

// sinceOf gives what each list asked to be not older than, "-" for consistent ones and "*" for ones
// in one page.
func (c *cluster) sinceOf() (since []string) {
	for _, r := range c.Requests(testkit.Lists) {
		if testkit.Continues(r) {
			continue
		}
		v := r.Query.Get("resourceVersion")
		if v != "" && r.Query.Get("resourceVersionMatch") != "NotOlderThan" {
			v += " exactly"
		}
		if v == "" {
			v = "-"
		}
		if !r.Query.Has("limit") {
			v += "*"
		}
		since = append(since, v)
	}
	return since
}

// A list that is lost again and again asks for less, and at last for one page.
func TestListFallbacks(t *testing.T) {
	tests := []struct {
		name  string
		match testkit.Match
		times int
		want  []string
	}{
		{"its pages are there", testkit.Continues, 0, []string{"101"}},
		{"its version is compacted", testkit.Lists, 1, []string{"101", "-"}},
		{"a token expires", testkit.Continues, 1, []string{"101", "101"}},
		{"tokens expire again and again", testkit.Continues, 3, []string{"101", "101", "101", "-"}},
		{"tokens always expire", testkit.Continues, -1, []string{"101", "101", "101", "-", "-*"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				saved := c.Version()
				c.create("shop/a", "shop/b", "shop/c")
				c.Skip(1)
				c.Expire()
				c.Faults.Refuse(tt.match, tt.times, http.StatusGone, "Expired")
				c.follow(pods, func(cfg *reflector.Config) {
					paged(2)(cfg)
					cfg.From = saved
				})
				c.later(2 * time.Minute)
				if got := c.sinceOf(); !slices.Equal(got, tt.want) {
					t.Errorf("lists not older than %q, want %q", got, tt.want)
				}
				if got := c.refl.Status(); got.Version != "101" || got.Items != 3 {
					t.Errorf("Status = %+v", got)
				}
				c.Faults.Heal()
				c.expireNow() // the next time it begins as if nothing had been
				c.later(5 * time.Minute)
				if got := c.sinceOf(); got[len(got)-1] != "102" {
					t.Errorf("the next list is not older than %s", got[len(got)-1])
				}
			})
		})
	}
}

// A slow list is no silence.
func TestSlowList(t *testing.T) {
	t.Run("while items come", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.Faults.Answer(testkit.Lists, 1, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w,
					`{"metadata":{"resourceVersion":"97"},"items":[{"metadata":{"name":"a","resourceVersion":"1"}}`)
				for range 5 {
					_ = http.NewResponseController(w).Flush()
					time.Sleep(time.Minute)
					fmt.Fprint(w, `,{"metadata":{"name":"a","resourceVersion":"1"}}`)
				}
				fmt.Fprint(w, `]}`)
			})
			c.follow(pods, paged(0))
			c.later(6 * time.Minute)
			if got := c.refl.Status(); !got.Synced || got.Items != 6 {
				t.Errorf("Status = %+v", got)
			}
			c.expectRequests(testkit.Lists, 1, "lists")
		})
	})
	t.Run("while the store has no room", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			for i := range 200 { // more than fits into buffers on the way
				c.create(resource.MakeKey("shop", fmt.Sprint("a", i)))
			}
			gate := make(chan struct{})
			c.store.block = gate
			c.follow(pods, paged(0))
			c.later(10 * time.Minute)
			close(gate)
			synctest.Wait()
			if got := c.refl.Status(); !got.Synced || got.Items != 200 {
				t.Errorf("Status = %+v", got)
			}
			c.expectRequests(testkit.Lists, 1, "lists")
		})
	})
}

// A probe reads no more than it needs.
func TestProbeSize(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Answer(testkit.Probes, 1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"PodList","metadata":{"resourceVersion":"97"},"items":[`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		c.follow(pods, c.from(c.Version()))
		c.create("shop/a")
		c.expect("add shop/a@98")
	})
}
