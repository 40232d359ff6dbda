package informer_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// proofs counts how often a list has shown that the server's history is another.
type proofs struct {
	signal ratelimit.Signal
	times  atomic.Int64
}

func newProofs() *proofs { return &proofs{} }

func (p *proofs) count(c *informer.StagesConfig) {
	c.Diverged = &p.signal
	p.signal.Watch(func() { p.times.Add(1) })
}

func (p *proofs) found() int { return int(p.times.Load()) }

func (r *rig) noted() bool {
	r.t.Helper()
	diverged, err := r.indexer.Meta().Diverged()
	testkit.OK(r.t, err)
	return diverged
}

func (r *rig) position() resource.Version {
	r.t.Helper()
	testkit.OK(r.t, r.committer.Commit())
	position, err := r.indexer.Meta().Position()
	testkit.OK(r.t, err)
	return position.Version
}

// A diverged history is known until it is reported, whatever comes between.
func TestDivergedUntilReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out, found := memory(t), newOutbox(), newProofs()
		r := newRig(t, db, []*outbox{out}, found.count)
		r.list(initial, "90", "a@50", "b@60")
		r.update("a", "95")
		r.bookmark("96")
		out.wait(t, 4)
		testkit.Eventually(t, "the bookmark is passed", func() bool { return r.position() == "96" })

		r.list(expired, "200", "a@50", "b@60")
		testkit.Want(t, out.wait(t, 2), "informer.gap  all/pods/gap/3/20 inferred", "informer.synced  all/pods/synced/200")
		r.update("b", "201") // on the watch that the list continued as
		r.bookmark("202")
		testkit.Want(t, out.wait(t, 1), "resource.updated b ub/201")
		testkit.Eventually(t, "the bookmark is decided", func() bool {
			return r.informer.Log().Status().Unsettled == 0 && r.fifo.Stats().Deltas == 0
		})
		if found.found() != 1 || !r.noted() {
			t.Errorf("found %d times, noted %v: want 1, true", found.found(), r.noted())
		}
		if at := r.position(); at != "96" {
			t.Errorf("the watermark is %s: a run after a crash would continue behind what is undone", at)
		}
		rewound := resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "200", To: "203"}
		r.list(rewound, "203", "a@50", "b@201")
		testkit.Want(t, out.wait(t, 3),
			"informer.gap  all/pods/gap/200/203/epoch/1 inferred",
			"resource.updated a ua/50/epoch/1 inferred",
			"informer.synced  all/pods/synced/203/epoch/1")
		testkit.Eventually(t, "it is settled", func() bool { return r.position() == "203" && !r.noted() })
		r.stop()
	})
}

// A list of the same history is never taken for another history.
func TestDivergedFalseAlarm(t *testing.T) {
	tests := map[string]struct {
		report  func(r *rig)
		version resource.Version
	}{
		"as of an earlier version": {func(r *rig) { r.replace("a", "50") }, "94"},
		"as of an earlier version than what was deleted": {func(r *rig) {
			r.replace("a", "95")
			r.replace("b", "60")
		}, "96"},
		"that reports the later state before its end": {func(r *rig) {
			r.replace("a", "50")
			r.replace("a", "95")
		}, "200"},
		"of an object that was deleted before its end": {func(r *rig) {
			r.replace("a", "50")
			r.delete("a", "96")
		}, "200"},
		"that has a later state which can't be read": {func(r *rig) {
			r.replace("a", "50")
			testkit.OK(r.t, r.fifo.Skip(r.t.Context(), resource.Identity{Key: "shop/a", UID: "ua"}))
		}, "200"},
		"that has what can't be read, of any object": {func(r *rig) {
			r.replace("a", "50")
			testkit.OK(r.t, r.fifo.Skip(r.t.Context(), resource.Identity{}))
		}, "200"},
		"with another object of the name": {func(r *rig) { r.replace("a#2", "50") }, "200"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, found := newOutbox(), newProofs()
				r := newRig(t, memory(t), []*outbox{out}, found.count)
				r.list(initial, "90", "a@50", "b@60")
				r.update("a", "95")
				r.delete("b", "97")
				out.wait(t, 5)
				testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
				test.report(r)
				testkit.OK(t, r.fifo.EndReplace(t.Context(), test.version))
				r.stop()
				if found.found() != 0 || r.noted() {
					t.Error("the server's history is taken for another")
				}
			})
		})
	}
}

// It is unknown which states a run before had sent. What a list proves undone is reported by
// equality, and that says nothing of b as long as it is not known in which state it was sent.
func TestDivergedAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out, found := memory(t), newOutbox(), newProofs()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "90", "a@50", "b@60")
		r.update("a", "95")
		out.wait(t, 4)
		r.stop()

		r = newRig(t, db, []*outbox{out}, found.count, func(c *informer.StagesConfig) { c.Unclean = true })
		r.list(expired, "200", "a@50", "b@60")
		r.bookmark("201")
		out.wait(t, 2)
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "200", To: "203"}, "203", "a@50", "b@60")
		testkit.Want(t, out.wait(t, 4),
			"informer.gap  all/pods/gap/200/203/epoch/1 inferred",
			"resource.updated a ua/50/epoch/1 inferred",
			"resource.updated b ub/60/epoch/1 inferred",
			"informer.synced  all/pods/synced/203/epoch/1")
		r.stop()
	})
}

// A listed object that is not selected is compared, and is not gone.
// What is not selected any more is listed all the same: it is compared, and is there.
func TestDivergedUnselected(t *testing.T) {
	for name, test := range map[string]struct {
		version string
		found   int
	}{"in an older state than is known": {"50", 1}, "in a later one": {"150", 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, found := newOutbox(), newProofs()
				r := newRig(t, memory(t), []*outbox{out}, selects, found.count)
				r.list(initial, "90", "a@50")
				r.update("a", "95")
				out.wait(t, 3)
				testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
				r.unselected("a", test.version, false)
				testkit.OK(t, r.fifo.EndReplace(t.Context(), "200"))
				reported := []string{"informer.gap  all/pods/gap/3/20 inferred"}
				if test.found == 0 {
					reported = append(reported, "resource.deleted a ua/150/left inferred") // and not as one that died
				}
				reported = append(reported, "informer.synced  all/pods/synced/200")
				testkit.Want(t, out.wait(t, len(reported)), reported...)
				r.stop()
				if got := found.found(); got != test.found {
					t.Errorf("the history is taken for another %d times, want %d", got, test.found)
				}
			})
		})
	}
}

// A delete that is older than what is known shows that the history is another.
func TestDivergedOldDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, found := newOutbox(), newProofs()
		r := newRig(t, memory(t), []*outbox{out}, found.count)
		r.list(initial, "90", "a@50")
		r.update("a", "95")
		out.wait(t, 3)
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
		r.replace("a", "50")
		r.delete("a", "70")
		testkit.OK(t, r.fifo.EndReplace(t.Context(), "200"))
		r.stop()
		if found.found() != 1 {
			t.Error("nothing was reported")
		}
	})
}
