package informer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/controller"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A list without a position finds what was reported before it: what happened in between is missing,
// and its deletes are inferred.
func TestSecondSnapshotGap(t *testing.T) {
	t.Run("after one that a stop has cut short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			r := newRig(t, db, []*outbox{out})
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "4")
			r.replace("b", "5")
			testkit.Want(t, out.wait(t, 2), "resource.added a ua/4 initial", "resource.added b ub/5 initial")
			r.stop()

			r = newRig(t, db, []*outbox{out})
			r.list(initial, "20", "a@14")
			testkit.Want(t, out.wait(t, 4),
				"informer.gap  all/pods/gap// inferred",
				"resource.updated a ua/14 initial",
				"resource.deleted b ub/deleted inferred",
				"informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
	t.Run("after one that broke off, and is reported once however often it does", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out})
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "4")
			out.wait(t, 1)
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "5")
			testkit.Want(t, out.wait(t, 2), "informer.gap  all/pods/gap// inferred", "resource.updated a ua/5 initial")
			r.list(initial, "20")
			testkit.Want(t, out.wait(t, 2), "resource.deleted a ua/deleted inferred", "informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
	t.Run("before the first object that shows that something is missing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			out.hold = true
			r := newRig(t, db, []*outbox{out})
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "4")
			r.replace("b", "5")
			out.wait(t, 2)
			r.crash() // nothing is settled; what is new is announced

			out = newOutbox()
			r = newRig(t, db, []*outbox{out})
			r.list(initial, "20", "a@4", "c@7", "b@8")
			testkit.Want(t, out.wait(t, 5),
				"resource.added a ua/4 initial",
				"resource.added c uc/7 initial",
				"informer.gap  all/pods/gap// inferred",
				"resource.added b ub/8 initial",
				"informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
	t.Run("after one that has ended, whether that was settled or not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			r := newRig(t, db, []*outbox{out})
			r.list(initial, "10", "a@4")
			testkit.Want(t, out.wait(t, 2), "resource.added a ua/4 initial", "informer.synced  all/pods/synced/10")
			r.crash() // nothing is committed: an object that was created since may be gone

			for range 2 {
				out = newOutbox()
				out.hold = true
				r = newRig(t, db, []*outbox{out})
				testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
				r.replace("a", "4")
				testkit.Want(t, out.wait(t, 1), "informer.gap  all/pods/gap// inferred")
				r.crash()
			}
		})
	})
	t.Run("after the position was forgotten, since something else is selected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			r := newRig(t, db, []*outbox{out})
			r.list(initial, "10", "a@4")
			out.wait(t, 2)
			r.stop()

			_, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Scope: "another"})
			testkit.OK(t, err)
			r = newRig(t, db, []*outbox{out})
			r.list(initial, "20", "a@4")
			testkit.Want(t, out.wait(t, 2), "informer.gap  all/pods/gap///selection/2 inferred",
				"informer.synced  all/pods/synced/20/selection/2")
			r.stop()
		})
	})
	t.Run("but not after one that was killed, when nothing has changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := memory(t)
			out := newOutbox()
			r := newRig(t, db, []*outbox{out})
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			r.replace("a", "4")
			r.replace("b", "5")
			out.wait(t, 2)
			testkit.OK(t, r.committer.Commit())
			r.replace("c", "6")
			out.wait(t, 1)
			r.crash()

			out = newOutbox()
			r = newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) {
				c.EarlierRuns = func(context.Context) (f controller.EarlierRuns) {
					t.Error("the sinks are asked for what this bridge has sent")
					return f
				}
			})
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			for _, item := range []string{"a@4", "b@5", "c@6", "d@7", "d@8"} { // d changes meanwhile
				name, version, _ := strings.Cut(item, "@")
				r.replace(name, version)
			}
			testkit.OK(t, r.fifo.EndReplace(t.Context(), "20"))
			testkit.Want(t, out.wait(t, 4),
				"resource.added c uc/6 initial", "resource.added d ud/7 initial",
				"resource.updated d ud/8 initial", "informer.synced  all/pods/synced/20")
			r.stop()
		})
	})
	t.Run("but not after one that reported nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out})
			testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
			r.list(initial, "20", "a@4")
			testkit.Want(t, out.wait(t, 2), "resource.added a ua/4 initial", "informer.synced  all/pods/synced/20")
			r.list(resource.Relist{Reason: resource.ReasonExpired, From: "20", To: "30"}, "30", "a@4")
			testkit.Want(t, out.wait(t, 2), "informer.gap  all/pods/gap/20/30 inferred", "informer.synced  all/pods/synced/30")
			r.stop()
		})
	})
}

// A list before which the bridge knew nothing says so: where its state and a stream are lost
// together, nothing else shows consumers that what did not come is gone.
func TestFirstList(t *testing.T) {
	firsts := func(out *outbox) (list []bool) {
		for _, e := range out.events() {
			if e.Op == event.Synced {
				list = append(list, strings.Contains(string(e.Data), `"first":true`))
			}
		}
		return list
	}
	later := resource.Relist{Reason: resource.ReasonExpired, From: "10", To: "20"}
	for name, test := range map[string]struct {
		before func(t *testing.T, db *store.DB)
		change option
		want   []bool // of the list, and of one behind a gap
	}{
		"of a new informer": {want: []bool{true, false}},
		"after one that a stop has cut short": {
			before: func(t *testing.T, db *store.DB) {
				t.Helper()
				r := newRig(t, db, []*outbox{newOutbox()})
				testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
				r.replace("a", "4")
				r.stop()
			},
			want: []bool{true, false},
		},
		"after one that was on disk, and not settled": { // it is sent first
			before: func(t *testing.T, db *store.DB) {
				t.Helper()
				out := newOutbox()
				out.hold = true
				r := newRig(t, db, []*outbox{out})
				r.list(initial, "5", "a@4")
				out.wait(t, 2)
				r.crash()
			},
			want: []bool{true, false, false},
		},
		"after one that was settled, and a position that was forgotten": {
			before: func(t *testing.T, db *store.DB) {
				t.Helper()
				r := newRig(t, db, []*outbox{newOutbox()})
				r.list(initial, "5", "a@4")
				r.stop()
				_, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Scope: "another"})
				testkit.OK(t, err)
			},
			want: []bool{false, false},
		},
		"of a state that was lost": {
			change: func(c *informer.StagesConfig) {
				c.EarlierRuns = func(context.Context) controller.EarlierRuns {
					return controller.EarlierRuns{Holding: []string{"sink-0"}}
				}
			},
			want: []bool{true, false},
		},
		"of a replica that succeeds another": {
			change: func(c *informer.StagesConfig) {
				c.Succeeds = func() (resource.Version, bool) { return "3", true }
			},
			want: []bool{false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, out := memory(t), newOutbox()
				if test.before != nil {
					test.before(t, db)
				}
				r := newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) {
					if test.change != nil {
						test.change(c)
					}
				})
				synctest.Wait()
				r.list(initial, "10", "a@4")
				synctest.Wait()
				r.list(later, "20", "a@4")
				synctest.Wait()
				r.stop()
				if got := firsts(out); !slices.Equal(got, test.want) {
					t.Errorf("%v, want %v", got, test.want)
				}
			})
		})
	}
}
