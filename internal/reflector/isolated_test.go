package reflector_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// levels gives an object so many levels.
func levels(n int) func(map[string]any) {
	return func(obj map[string]any) {
		obj["spec"] = json.RawMessage(strings.Repeat("[", n-1) + strings.Repeat("]", n-1))
	}
}

// size gives an object so many bytes, and some more.
func size(n int) func(map[string]any) {
	return func(obj map[string]any) { obj["spec"] = strings.Repeat("x", n) }
}

// strange are objects that no list can read more of; small frames make some of them too large.
var strange = map[string]func(map[string]any){
	"too deep": levels(1001), "far too deep": levels(9999), "too large": size(50_000),
	"a little too large": size(4_000), "too large and too deep": func(obj map[string]any) {
		levels(9999)(obj)
		obj["status"] = obj["spec"]
	},
}

const smallFrame = 4096

// ways to read a collection, and what they make of an object that is too deep.
var ways = map[string]func(*cluster, *reflector.Config){
	"watch":     func(c *cluster, cfg *reflector.Config) { cfg.From = c.Version() },
	"WatchList": func(*cluster, *reflector.Config) {},
	"paged": func(_ *cluster, cfg *reflector.Config) {
		cfg.DisableWatchList,
			cfg.PageSize = true, 2
	},
	"relist, by page": func(_ *cluster, cfg *reflector.Config) {
		cfg.DisableWatchList,
			cfg.PageSize = true, 1
	},
}

// relist lets the reflector list everything again.
func (c *cluster) relist() {
	c.Skip(1)
	c.Expire()
	c.Streams.Cut()
	c.later(time.Minute)
}

func TestDepth(t *testing.T) {
	for _, n := range []int{
		997, 998, 999, 1000, 1001, 1002, 1003, 9997, 9998, 9999, 10_000,
		10_001,
	} {
		for way, change := range ways {
			for _, typ := range []resource.Type{pods, widgets} {
				t.Run(fmt.Sprintf("%d levels, %s, %s", n, way, typ.Resource), func(t *testing.T) {
					run(t, func(t *testing.T) {
						c := newCluster(t, typ)
						fill := func() {
							c.create("shop/a")
							c.Create("shop/b", levels(n))
							c.create("shop/c")
						}
						if way != "watch" {
							fill()
						}
						c.follow(typ, func(cfg *reflector.Config) { change(c, cfg) })
						want := []string{
							"begin initial", "replace shop/a@98", "replace shop/b@99",
							"replace shop/c@100", "end 100",
						}
						if way == "watch" {
							fill()
							want = []string{"add shop/a@98", "add shop/b@99", "add shop/c@100"}
						}
						tooDeep := n > resource.MaxDepth
						if tooDeep {
							want = slices.DeleteFunc(want,
								func(call string) bool { return strings.Contains(call, "shop/b") })
							if way != "watch" {
								want = slices.Insert(want, 2, "skip shop/b")
							}
						}
						c.expect(want...)
						if strings.HasPrefix(way, "relist") {
							c.relist()
							want[0], want[len(want)-1] = "begin expired 100..101", "end 101"
							c.expect(want...)
						}
						if got := len(c.store.unreadable) == 1; got != tooDeep || len(c.store.unreadable) > 1 {
							t.Fatalf("quarantined: %d", len(c.store.unreadable))
						}
						if tooDeep && (c.store.unreadable[0].Reason != "too-deep" ||
							c.store.unreadable[0].Key != "shop/b" || len(c.store.unreadable[0].Raw) < n) {
							t.Errorf("quarantined: %+v", c.store.unreadable[0])
						}
					})
				})
			}
		}
	}
}

func TestIsolated(t *testing.T) {
	small := func(cfg *reflector.Config) { cfg.MaxFrame = smallFrame }
	for name, poison := range strange {
		t.Run(name, func(t *testing.T) {
			t.Run("70 in a list are reported once each, and the list ends", func(t *testing.T) {
				for way, change := range ways {
					if way == "watch" {
						continue
					}
					run(t, func(t *testing.T) {
						c := newCluster(t, widgets)
						for i := range 70 {
							c.Create(resource.Key(fmt.Sprintf("shop/b%d", i)), poison)
						}
						c.create("shop/c")
						c.follow(widgets, func(cfg *reflector.Config) {
							small(cfg)
							change(c,
								cfg)
						})
						for _, end := range []string{"end 168", "end 169"} {
							calls := c.store.take()
							if !slices.Contains(calls, "replace shop/c@168") ||
								calls[len(calls)-1] != end || len(c.store.unreadable) != 70 {
								t.Fatalf("%s: %d quarantined, the store got %q", way,
									len(c.store.unreadable), calls)
							}
							c.relist()
						}
					})
				}
			})
			t.Run("70 in a watch are reported once each, and nothing is listed", func(t *testing.T) {
				run(t, func(t *testing.T) {
					c := newCluster(t, widgets)
					c.follow(widgets,
						func(cfg *reflector.Config) { small(cfg); cfg.From = c.Version() })
					for i := range 70 {
						c.Create(resource.Key(fmt.Sprintf("shop/b%d", i)), poison)
					}
					c.create("shop/c")
					c.expect("add shop/c@168")
					if len(c.store.unreadable) != 70 || c.store.unreadable[0].Version != "98" ||
						c.metric("relists_total", "") != 0 {
						t.Errorf("%d quarantined", len(c.store.unreadable))
					}
				})
			})
			t.Run("a deletion needs nothing of the last state", func(t *testing.T) {
				run(t, func(t *testing.T) {
					c := newCluster(t, widgets)
					c.create("shop/b")
					c.follow(widgets,
						func(cfg *reflector.Config) { small(cfg); cfg.From = c.Version() })
					c.Update("shop/b", poison)
					c.Delete("shop/b")
					c.create("shop/c")
					c.expect("gone shop/b@100", "add shop/c@101")
					if len(c.store.unreadable) != 1 || c.metric("relists_total", "") != 0 {
						t.Errorf("%d quarantined", len(c.store.unreadable))
					}
				})
			})
			t.Run("after the server's history went back it is not followed any more",
				func(t *testing.T) {
					run(t, func(t *testing.T) {
						c := newCluster(t, widgets)
						c.create("shop/a")
						c.Create("shop/b", poison)
						c.follow(widgets,
							func(cfg *reflector.Config) { small(cfg); cfg.From = "1000" })
						c.later(time.Minute)
						c.expect("begin rewound 1000..99 rewound", "replace shop/a@98",
							"left shop/b@99", "end 99")
					})
				})
			t.Run("a probe and a look beside the watch go over it", func(t *testing.T) {
				run(t, func(t *testing.T) {
					c := newCluster(t, widgets)
					c.Create("shop/a", poison)
					c.create("shop/b")
					c.follow(widgets,
						func(cfg *reflector.Config) { small(cfg); cfg.Snapshot = false })
					c.expect("bookmark 99")
					var got []resource.Key
					_, unread, err := c.refl.ReadPage(t.Context(),
						"", func(obj *resource.Object) error {
							got = append(got, obj.Key())
							return nil
						})
					if err != nil || unread != 1 || !slices.Equal(got, []resource.Key{"shop/b"}) {
						t.Errorf("%v, %d not read, %v", got, unread, err)
					}
				})
			})
		})
	}
	t.Run("an object that does not end is a cut connection", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, widgets)
			c.follow(widgets, func(cfg *reflector.Config) { small(cfg); cfg.From = c.Version() })
			c.later(2 * time.Second)
			c.Streams.Raw(`{"type":"ADDED","object":{"metadata":{"name":"a"},"x":"` +
				strings.Repeat("x", 50_000))
			c.Streams.Close()
			c.later(time.Second)
			if len(c.store.unreadable) != 0 || c.metric("relists_total", "") != 0 {
				t.Errorf("%d quarantined", len(c.store.unreadable))
			}
		})
	})
}
