package bridge_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// labelled gives an object its only label; "" for none.
func labelled(app string) func(map[string]any) {
	return func(obj map[string]any) {
		labels := map[string]any{}
		if app != "" {
			labels["app"] = app
		}
		obj["metadata"].(map[string]any)["labels"] = labels
	}
}

// reported are the names of objects, ids and causes of what a broker has since the last call,
// sorted: between objects there is no order.
func reported(b *testkit.Broker) (lines []string) {
	for _, rec := range b.Next() {
		if rec.Name == "" {
			lines = append(lines, string(rec.Op))
			continue
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", rec.Op, rec.ID, rec.Cause)))
	}
	slices.Sort(lines)
	return lines
}

func expectReported(t *testing.T, b *testkit.Broker, lines ...string) {
	t.Helper()
	if got := reported(b); !slices.Equal(got, lines) {
		t.Errorf("reported\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

// newSelectRig follows the pods with app=web.
func newSelectRig(t *testing.T) (*rig, *testkit.Broker) {
	b := calmBroker(t, "a")
	r := newRig(t, b)
	r.cfg.Units[0].LabelSelector, r.cfg.Units[0].SelectHere = "app=web", true
	return r, b
}

func (r *rig) restart(change func(*informer.Config)) {
	r.t.Helper()
	_, err := r.end()
	testkit.OK(r.t, err)
	change(&r.cfg.Units[0])
	r.start()
}

// A selector that is reverted brings everything under other ids.
func TestSelectHereReverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newSelectRig(t)
		r.Create("shop/p", labelled("web"))
		r.Create("shop/q", labelled("db"))
		r.start()
		expectReported(t, b, "added uid-p-98/98", "synced")
		r.restart(func(u *informer.Config) { u.LabelSelector = "app=db" })
		expectReported(t, b, "added uid-q-99/99/selection/1", "deleted uid-p-98/98/left/selection/1 left-selector", "gap", "synced")
		r.restart(func(u *informer.Config) { u.LabelSelector = "app=web" })
		expectReported(t, b, "added uid-p-98/98/selection/2", "deleted uid-q-99/99/left/selection/2 left-selector", "gap", "synced")
		r.restart(func(*informer.Config) {})
		r.Delete("shop/p")
		r.settle()
		expectReported(t, b, "deleted uid-p-98/deleted/selection/2 deleted")
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// Another selector makes objects leave, and the bridge crashes before it commits that. When the
// selector is the first one again, the objects come as added, though their versions are known.
func TestSelectorRevertedAfterCrash(t *testing.T) {
	for _, here := range []bool{true, false} {
		t.Run(fmt.Sprint("selected here ", here), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, b := newSelectRig(t)
				r.cfg.Units[0].SelectHere = here
				r.Create("shop/p", labelled("web"))
				r.Create("shop/q", labelled("web"))
				r.start()
				reported(b)
				r.cfg.CommitInterval = time.Hour
				r.restart(func(u *informer.Config) { u.LabelSelector = "app=db" })
				left := reported(b)
				if len(left) != 4 || !strings.HasPrefix(left[0], "deleted uid-p-98/98/") {
					t.Errorf("reported %q", left)
				}
				r.crash()
				r.Update("shop/q", nil)
				r.cfg.Units[0].LabelSelector = "app=web"
				r.start()
				expectReported(t, b, "added uid-p-98/98/selection/2", "added uid-q-99/100/selection/2", "gap", "synced")
				r.restart(func(*informer.Config) {})
				expectReported(t, b)
				_, err := r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// While a sink is unavailable and nothing is spooled, each start lists. An object that leaves twice
// has two deletes with ids of their own: consumers drop an id that they know.
func TestLeavesTwiceUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newSelectRig(t)
		r.cfg.Units[0].SelectHere = false
		r.cfg.Units[0].Queue.Spool = -1
		away := calmBroker(t, "away")
		away.Set(testkit.Hung)
		r.addSink(away.Name, away.Connect(0))
		r.Create("shop/p", labelled("web"))
		r.start()
		expectReported(t, b, "added uid-p-98/98", "synced")
		for i, step := range []struct{ app, reported string }{
			{"db", "deleted uid-p-98/98/deleted unknown"},
			{"web", "added uid-p-98/100"},
			{"db", "deleted uid-p-98/100/deleted unknown"},
		} {
			if _, err := r.end(); !errors.Is(err, bridge.ErrDrain) {
				t.Fatal(err)
			}
			r.Update("shop/p", labelled(step.app))
			r.start()
			if lines := reported(b); !slices.Contains(lines, step.reported) {
				t.Errorf("start %d reported %q, want %q", i+1, lines, step.reported)
			}
		}
		away.Set(testkit.Healthy)
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// Changing where the selector is evaluated needs no list.
func TestSelectHereWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newSelectRig(t)
		r.cfg.Units[0].SelectHere = false
		r.Create("shop/p", labelled("web"))
		r.Create("shop/q", labelled("db"))
		r.start()
		expectReported(t, b, "added uid-p-98/98", "synced")
		r.restart(func(u *informer.Config) {
			r.Update("shop/p", labelled("db"))
			r.Update("shop/q", labelled("web"))
			u.SelectHere = true
		})
		expectReported(t, b, "added uid-q-99/101 entered-selector", "deleted uid-p-98/100/left left-selector")
		r.restart(func(u *informer.Config) {
			r.Update("shop/q", labelled("db"))
			u.SelectHere = false
		})
		expectReported(t, b, "deleted uid-q-99/101/deleted unknown")
		lists := func(q testkit.Request) bool { return q.Query.Get("sendInitialEvents") == "true" }
		if n := len(r.Requests(lists)); n != 1 {
			t.Errorf("%d lists, want the first one only", n)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// What left within history that the server has undone is selected as it was, and what is selected
// no more in the restored one leaves.
func TestSelectHereRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newSelectRig(t)
		r.Create("shop/p", labelled("web"))
		r.Create("shop/q", labelled("db"))
		r.start()
		r.Streams.Bookmark()
		r.settle()
		reported(b)
		backup := r.Version()
		r.Update("shop/p", labelled("db"))
		r.Update("shop/q", labelled("web"))
		r.settle()
		r.Streams.Bookmark()
		r.settle()
		expectReported(t, b, "added uid-q-99/101 entered-selector", "deleted uid-p-98/100/left left-selector")
		r.Rewind(backup)
		r.settle()
		expectReported(t, b, "added uid-p-98/98/epoch/1", "deleted uid-q-99/99/left/epoch/1 left-selector", "gap", "synced")
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// A list has another object of the name, which is not selected. So the known one has died.
func TestSelectHereSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newSelectRig(t)
		r.Create("shop/p", labelled("web"))
		r.start()
		reported(b)
		r.restart(func(*informer.Config) {
			r.Delete("shop/p")
			r.Create("shop/p", labelled("db"))
			r.Expire()
		})
		expectReported(t, b, "deleted uid-p-98/deleted deleted", "gap", "synced")
		r.Update("shop/p", labelled("web"))
		r.settle()
		expectReported(t, b, "added uid-p-100/101 entered-selector")
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// Labels are selected within namespaces and shards.
// Namespaces, shards and labels are selected one after the other in the same place.
func TestSelectHereInShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newSelectRig(t)
		spaces := testkit.NewServer(t, namespaceType)
		spaces.Create("shop", labelled("prod"))
		spaces.Create("lab", nil)
		r.cfg.Client.HTTP = &http.Client{Transport: besides{spaces, r.Server}}
		u := &r.cfg.Units[0]
		u.NamespaceSelector, u.Shard = "app=prod", resource.Shard{Index: 0, Count: 2}
		mine, other := "", ""
		for i := 0; mine == "" || other == ""; i++ {
			name := fmt.Sprint("o", i)
			if both := u.Shard.Has(pods, "shop", name) && u.Shard.Has(pods, "lab", name); both && mine == "" {
				mine = name
			} else if !both && !u.Shard.Has(pods, "shop", name) && other == "" {
				other = name
			}
		}
		r.Create(resource.MakeKey("shop", mine), labelled("web"))
		r.Create(resource.MakeKey("lab", mine), labelled("db"))
		r.Create(resource.MakeKey("shop", other), labelled("web"))
		r.start()
		expectReported(t, b, fmt.Sprintf("added uid-%s-98/98", mine), "synced")
		r.Update(resource.MakeKey("lab", mine), labelled("web"))
		r.Update(resource.MakeKey("shop", other), labelled("db"))
		r.Update(resource.MakeKey("shop", mine), labelled("db"))
		r.settle()
		expectReported(t, b, fmt.Sprintf("deleted uid-%s-98/103/left left-selector", mine))
		spaces.Update("lab", labelled("prod"))
		r.settle()
		expectReported(t, b, fmt.Sprintf("added uid-%s-99/101 entered-selector", mine))
		r.Update(resource.MakeKey("lab", mine), labelled("db"))
		r.Update(resource.MakeKey("lab", mine), labelled("web"))
		r.settle()
		expectReported(t, b, fmt.Sprintf("added uid-%s-99/105 entered-selector", mine), fmt.Sprintf("deleted uid-%s-99/104/left left-selector", mine))
		spaces.Update("lab", labelled("dev"))
		r.settle()
		expectReported(t, b, fmt.Sprintf("deleted uid-%s-99/105/deleted left-selector", mine))
		_, err := r.end()
		testkit.OK(t, err)
	})
}
