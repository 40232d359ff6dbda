package informer_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// quarantine passes on what can't be understood, of a pod or, without a name, of who knows what.
func (r *rig) quarantine(name, version string) {
	u := &resource.Unreadable{
		Reason: "too-deep", Occurrence: "u" + name + "/" + version, Version: resource.Version(version),
		Digest: strings.Repeat("0", 64),
	}
	if name != "" {
		u.Key = resource.Key("shop/" + name)
	}
	testkit.OK(r.t, r.fifo.Quarantine(r.t.Context(), u))
}

func TestQuarantine(t *testing.T) {
	for name, options := range map[string][]option{"": nil, ", of a listener with the newest states": {latest(16)}} {
		t.Run("what is about one object waits for no other one"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out}, options...)
				out.setHold(true)
				r.add("stuck", "1") // its topic is missing
				r.quarantine("deep", "2")
				r.add("b", "3")
				synctest.Wait()
				testkit.Want(t, out.taken(), "resource.added stuck ustuck/1",
					"informer.quarantined  all/pods/quarantined/too-deep/udeep/2", "resource.added b ub/3")
				out.release()
				r.stop()
			})
		})
	}
	t.Run("what is about nobody knows which object waits for all, and all wait for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out})
			out.setHold(true)
			r.add("a", "1")
			r.quarantine("", "2")
			r.add("b", "3")
			synctest.Wait()
			testkit.Want(t, out.taken(), "resource.added a ua/1")
			out.settleOf("a")
			synctest.Wait()
			testkit.Want(t, out.taken(), "informer.quarantined  all/pods/quarantined/too-deep/u/2")
			out.release()
			testkit.Want(t, out.wait(t, 1), "resource.added b ub/3")
			r.stop()
		})
	})
	t.Run("a listener with the newest states gets each, between the states around it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, latest(1))
			out.setHold(true)
			r.add("z", "1") // it alone is with the publisher
			out.wait(t, 1)
			r.add("a", "2")
			r.update("a", "3")
			r.quarantine("a", "4")
			r.quarantine("a", "5")
			r.update("a", "6")
			r.update("a", "7")
			synctest.Wait()
			out.release()
			r.stop()
			testkit.Want(t, out.taken(), "resource.added a ua/3", "informer.quarantined  all/pods/quarantined/too-deep/ua/4",
				"informer.quarantined  all/pods/quarantined/too-deep/ua/5", "resource.updated a ua/7")
		})
	})
	for name, next := range map[string]struct {
		report func(r *rig)
		line   string
	}{
		"is added":   {func(r *rig) { r.add("a#2", "60") }, "resource.added a ua2/60"},
		"is updated": {func(r *rig) { r.update("a#2", "60") }, "resource.added a ua2/60"},
		"is deleted": {func(r *rig) { r.delete("a#2", "60") }, "resource.deleted a ua2/deleted"},
	} {
		t.Run("an object that was sent before a crash and can't be read is gone before the next of its name "+name,
			func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db, out := memory(t), newOutbox()
					out.setHold(true)
					r := newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) { c.Unclean = true })
					r.add("a", "50")
					out.wait(t, 1)
					r.crash()

					out = newOutbox()
					r = newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) { c.Unclean = true })
					r.quarantine("a", "50")
					r.quarantine("a", "55") // its delete
					next.report(r)
					testkit.Want(t, out.wait(t, 4)[2:], "resource.deleted a ua/deleted inferred", next.line)
					r.stop()
				})
			})
	}
}
