package reflector_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// garbled makes an object one that can't be understood, though it is JSON and says which it is.
func garbled(obj map[string]any) { obj["metadata"].(map[string]any)["generation"] = "poison" }

// unidentified makes it one without a name.
func unidentified(obj map[string]any) {
	garbled(obj)
	delete(obj["metadata"].(map[string]any), "name")
}

// A list continues behind an item that can't be understood.
func TestSkippedItem(t *testing.T) {
	tests := map[string]struct {
		poison  func(map[string]any)
		skipped string
	}{
		"that says which object it is": {garbled, "skip shop/b"},
		"that does not":                {unidentified, "skip"},
		"with a namespace that is none": {func(obj map[string]any) {
			obj["metadata"].(map[string]any)["namespace"] = []string{"shop"}
		}, "skip"},
		"that says it is another": {func(obj map[string]any) {
			obj["metadata"].(map[string]any)["name"] = "c" // the key is what it says
			garbled(obj)
		}, "skip shop/c"},
	}
	for name, tt := range tests {
		for how, change := range map[string]func(*reflector.Config){
			"paged":        paged(2),
			"by WatchList": nil,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				run(t, func(t *testing.T) {
					c := newCluster(t, widgets)
					c.create("shop/a")
					c.Create("shop/b", tt.poison)
					c.create("shop/d")
					c.follow(widgets, change)
					c.expect("begin initial", "replace shop/a@98", tt.skipped, "replace shop/d@100",
						"end 100")
					c.create("shop/e")
					c.expect("add shop/e@101")
					if len(c.store.unreadable) != 1 || !c.store.unreadable[0].Listed ||
						c.metric("quarantined_total", "") != 1 {
						t.Errorf("quarantined: %q", c.store.quarantined)
					}
					if c.metric("relists_total", "") != 1 {
						t.Error("listed again")
					}
				})
			})
		}
	}
}

// A list that could infer no deletes is followed by another when the watch ends.
func TestSkippedItemRelist(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, widgets)
		c.create("shop/a")
		c.Create("shop/b", unidentified)
		c.follow(widgets, nil)
		c.expect("begin initial", "replace shop/a@98", "skip", "end 99")
		// A watch takes 5 to 10 minutes, in whole seconds: one ends, and not two.
		c.later(10*time.Minute - time.Second/2)
		c.expect("begin unreadable 99..99", "replace shop/a@98", "skip", "end 99")
	})
}

// An object that every list skips is reported once, and its next states need no list.
func TestSkippedItemInEveryList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		c.Update("shop/a", garbled)
		c.later(time.Minute)
		c.expect("begin unreadable 98..99", "skip shop/a", "end 99") // a list could have read it
		// the list had the same bytes
		if len(c.store.unreadable) != 1 || c.store.unreadable[0].Key != "shop/a" {
			t.Fatalf("quarantined: %q", c.store.quarantined)
		}

		c.Update("shop/a", garbled)
		c.create("shop/b")
		c.later(time.Second)
		c.expect("add shop/b@101")
		if last := c.store.unreadable[len(c.store.unreadable)-1]; len(c.store.unreadable) != 2 ||
			last.Version != "100" || last.Key != "shop/a" {
			t.Errorf("quarantined: %q", c.store.quarantined)
		}

		// the next list has the same item as the one before: it is skipped, and not reported again
		c.Expire()
		c.Streams.Cut()
		c.later(time.Minute)
		c.create("shop/c")
		c.later(time.Minute)
		calls := c.store.take()
		if !slices.Contains(calls, "add shop/c@102") {
			t.Errorf("the store got %q", calls)
		}

		// by a frame that can't be understood either: only a list shows that it is gone
		c.Delete("shop/a")
		c.later(time.Minute)
		c.expect("begin unreadable 102..103", "replace shop/b@101", "replace shop/c@102", "end 103")
	})
}

// A list of which too much can't be understood is read again.
func TestSkippedItemsTooMany(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		for i := range 65 {
			c.Create(resource.MakeKey("shop", string(rune('A'+i%26))+strings.Repeat("x", i/26)),
				garbled)
		}
		c.follow(pods, paged(10))
		c.later(time.Hour)
		if c.refl.Status().Synced {
			t.Error("synced")
		}
		if got := len(c.Requests(testkit.Lists)); got < 60*7 || got > 125*7 {
			t.Errorf("%d pages in an hour", got)
		}
		if len(c.store.unreadable) != 65 {
			t.Errorf("%d quarantined", len(c.store.unreadable))
		}
	})
}

// An object outside the selection is not quarantined.
func TestSkippedUnselected(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Create("shop/a", garbled)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.Selects = func(obj *resource.Object) bool { return obj.Namespace != "shop" }
		})
		c.Update("shop/a", garbled)
		c.create("lab/b")
		c.later(time.Minute)
		c.expect("begin initial", "end 98", "add lab/b@100")
		if len(c.store.quarantined) != 0 {
			t.Errorf("quarantined: %q", c.store.quarantined)
		}
	})
}

// A list with holes is not ended.
func TestListWithHoles(t *testing.T) {
	t.Run("after the server's history has gone back", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, pods)
			c.Create("shop/b", garbled)
			c.follow(pods, c.from("1000"))
			c.later(time.Minute)
			if calls := c.store.take(); slices.ContainsFunc(calls, isEnd) ||
				c.refl.Status().Synced {
				t.Errorf("the store got %q", calls)
			}
			c.Update("shop/b", func(obj map[string]any) {
				delete(obj["metadata"].(map[string]any), "generation")
			})
			c.later(time.Minute)
			if calls := c.store.take(); !slices.ContainsFunc(calls, isEnd) {
				t.Errorf("the store got %q", calls)
			}
		})
	})
}

func isEnd(call string) bool { return strings.HasPrefix(call, "end") }

// selection is a selection of namespaces that does not change.
type selection struct{ set reflector.NamespaceSet }

// Current implements reflector.Namespaces.
func (s *selection) Current() (*reflector.NamespaceSet, <-chan struct{}) { return &s.set, nil }

// The list of a namespace skips items too when it is the first.
// A process that resumes has listed nothing when a namespace comes into the selection.
func TestSkippedItemOfNamespace(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.Create("shop/b", garbled)
		at := c.Version()
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From = at
			cfg.Namespaces = &selection{reflector.NamespaceSet{Selected: map[string]resource.Version{"shop": at}, Exists: map[string]bool{"shop": true}}}
		})
		c.later(time.Minute)
		c.create("shop/c")
		c.later(time.Second)
		calls := c.store.take()
		for _, want := range []string{"replace shop/a@98", "skip shop/b", "add shop/c@100"} {
			if !slices.Contains(calls, want) {
				t.Errorf("the store got %q, not %q", calls, want)
			}
		}
	})
}
