package informer_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// changes makes all listeners send the old object with updates.
func changes(t *testing.T) option {
	maker, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods, Payload: event.PayloadChange})
	testkit.OK(t, err)
	return func(c *informer.StagesConfig) {
		for i := range c.Listeners {
			c.Listeners[i].Maker = maker
		}
	}
}

// steps are the events as "new from old".
func (o *outbox) steps(t *testing.T) []string {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	type versioned struct {
		Metadata struct{ ResourceVersion string }
	}
	var steps []string
	for _, e := range o.raw {
		if e.Name == "" {
			continue
		}
		var data struct {
			Object, Old versioned
			Patch       []struct{ Value string }
		}
		testkit.OK(t, json.Unmarshal(e.Data, &data))
		step := data.Object.Metadata.ResourceVersion + " from " + data.Old.Metadata.ResourceVersion
		if len(data.Patch) == 1 {
			step += " by " + data.Patch[0].Value
		}
		steps = append(steps, step)
	}
	return steps
}

// The old object is the version before.
func TestOldObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, changes(t))
		r.list(initial, "10", "a@4")
		out.wait(t, 2)
		testkit.OK(t, r.committer.Commit()) // the first old object comes from the database
		out.setHold(true)
		r.update("a", "11")
		r.update("a", "12") // these from the overlay
		r.delete("a", "13")
		r.add("a#2", "14")
		r.update("a#2", "15")
		out.wait(t, 5)
		testkit.Want(t, out.steps(t), "4 from ", "11 from 4 by 11", "12 from 11 by 12", "13 from ",
			"14 from ", "15 from 14 by 15")

		// A crash: 11 is settled and committed, what comes after it is not. It comes again, from
		// the same old object.
		out.mu.Lock()
		held := out.held
		out.mu.Unlock()
		settle(held[:1])
		testkit.OK(t, r.committer.Commit())
		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after}, changes(t))
		r2.update("a", "11")
		r2.update("a", "12")
		after.wait(t, 1)
		testkit.Want(t, after.steps(t), "12 from 11 by 12")
		r2.stop()
	})
}

// The old object lies on disk with its change.
func TestOldObjectOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, changes(t), spooling)
		r.add("a", "99")
		out.wait(t, 1)
		out.setHold(true)
		var lines []string
		for v := 100; v < 1100; v++ {
			r.update("a", fmt.Sprint(v))
			lines = append(lines, fmt.Sprintf("%d from %d by %d", v, v-1, v))
		}
		r.bookmark("2000")
		testkit.Eventually(t, "everything is on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "2000"
		})
		after := newOutbox() // the process dies, and another begins
		r2 := newRig(t, db, []*outbox{after}, changes(t), spooling)
		after.wait(t, 1000)
		testkit.Want(t, after.steps(t), lines...)
		r2.stop()
	})
}

// With a budget of bodies that is used up, the state on disk may be an earlier one than the last
// that was sent.
func TestInferredDeleteOldObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(statedb.Options{})
		testkit.OK(t, err)
		db.SetBodiesPerSecond(1)
		t.Cleanup(func() { testkit.OK(t, db.Close()) })
		out := newOutbox()
		r := newRig(t, db, []*outbox{out})
		r.list(initial, "10")
		out.wait(t, 1)
		const uid = "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd"
		onDisk, version := "", 10
		testkit.Eventually(t, "an update leaves the body", func() bool {
			version++
			raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":%q,"resourceVersion":"%d"}}`, uid, version)
			obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
			testkit.OK(t, err)
			testkit.OK(t, r.fifo.Update(t.Context(), obj))
			out.wait(t, 1)
			testkit.OK(t, r.committer.Commit())
			body, err := r.indexer.Object("shop/a")
			testkit.OK(t, err)
			onDisk = string(body.Version)
			return onDisk != fmt.Sprint(version)
		})
		r.resync("a") // sends nothing: the version before must not come behind the last
		r.list(expired, "5000")
		testkit.Want(t, out.wait(t, 3),
			"informer.gap  all/pods/gap/3/20 inferred",
			"resource.deleted a "+uid+"/deleted inferred",
			"informer.synced  all/pods/synced/5000")
		out.mu.Lock()
		gone := out.raw[len(out.raw)-2]
		out.mu.Unlock()
		var data struct {
			Metadata struct{ ResourceVersion string }
		}
		testkit.OK(t, json.Unmarshal(gone.Data, &data))
		if gone.ResourceVersion != fmt.Sprint(version) || data.Metadata.ResourceVersion != onDisk {
			t.Errorf("version %s with an object of %s; want %d and %s", gone.ResourceVersion, data.Metadata.ResourceVersion, version, onDisk)
		}
		r.stop()
	})
}
