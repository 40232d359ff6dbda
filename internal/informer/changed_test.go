package informer_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func changedPod(t *testing.T, version, rest string) *resource.Object {
	t.Helper()
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"ua","resourceVersion":%q%s`, version, rest)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return obj
}

// changedParts are the events of objects as "version changed".
func (o *outbox) changedParts() (lines []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.raw {
		if e.Name != "" {
			lines = append(lines, e.ResourceVersion+" "+e.Changed)
		}
	}
	o.raw, o.lines = nil, nil
	return lines
}

// An update says what it changed. One that a list has found does not, since versions may lie
// between; nor does one behind a version that can't be read.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		asked := func(c *informer.StagesConfig) { c.Changed = true }
		r := newRig(t, db, []*outbox{out}, asked)
		update := func(version, rest string) {
			testkit.OK(t, r.fifo.Update(t.Context(), changedPod(t, version, rest)))
		}
		testkit.OK(t, r.fifo.Add(t.Context(), changedPod(t, "1", `},"spec":1}`)))
		update("2", `},"spec":2}`)
		update("3", `},"spec":2}`)
		update("4", `,"labels":{"a":"b"}},"spec":3,"status":1}`)
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
		testkit.OK(t, r.fifo.Replace(t.Context(), changedPod(t, "6", `},"spec":4}`)))
		testkit.OK(t, r.fifo.EndReplace(t.Context(), "6"))
		u := &resource.Unreadable{Reason: "too-deep", Key: "shop/a", Version: "7", Digest: strings.Repeat("0", 64)}
		testkit.OK(t, r.fifo.Quarantine(t.Context(), u))
		update("8", `},"spec":5}`)
		update("9", `},"spec":6}`)
		r.stop()
		testkit.Want(t, out.changedParts(), "1 ", "2 spec", "3 "+event.NothingChanged, "4 spec,status,labels", "6 ", "8 ", "9 spec")

		r = newRig(t, db, []*outbox{out}, asked) // it continues with the state on disk
		update("10", `},"spec":6,"status":2}`)
		r.stop()
		testkit.Want(t, out.changedParts(), "10 status")
	})
}

// What a crash sends again has the same attributes, and so has what went over the disk.
func TestChangedAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		asked := func(c *informer.StagesConfig) { c.Changed = true }
		changes := func(r *rig) {
			testkit.OK(t, r.fifo.Update(t.Context(), changedPod(t, "2", `},"spec":2}`)))
			testkit.OK(t, r.fifo.Update(t.Context(), changedPod(t, "3", `},"spec":2,"status":1}`)))
		}
		r := newRig(t, db, []*outbox{out}, asked)
		testkit.OK(t, r.fifo.Add(t.Context(), changedPod(t, "1", `},"spec":1}`)))
		synctest.Wait()
		testkit.OK(t, r.committer.Commit())
		changes(r)
		synctest.Wait()
		r.crash()
		before := out.changedParts()
		r = newRig(t, db, []*outbox{out}, asked)
		changes(r)
		r.stop()
		testkit.Want(t, before, "1 ", "2 spec", "3 status")
		testkit.Want(t, out.changedParts(), "2 spec", "3 status")
	})
}

// With latest, versions may be left out, and which ones depends on the pace of the sink.
func TestChangedLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, all := newOutbox(), newOutbox()
		r := newRig(t, memory(t), []*outbox{out, all}, latest(1), func(c *informer.StagesConfig) { c.Changed = true })
		testkit.OK(t, r.fifo.Add(t.Context(), changedPod(t, "1", `},"spec":1}`)))
		out.wait(t, 1)
		all.wait(t, 1)
		testkit.OK(t, r.fifo.Update(t.Context(), changedPod(t, "2", `},"spec":2}`)))
		r.stop()
		testkit.Want(t, out.changedParts()[1:], "2 ")
		testkit.Want(t, all.changedParts()[1:], "2 spec")
	})
}
