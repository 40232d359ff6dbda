package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

// crash ends the bridge with what was on disk at this moment.
func (r *rig) crash() {
	r.t.Helper()
	after := r.fs.CrashClone(crashed)
	_, err := r.end()
	testkit.OK(r.t, err)
	r.fs = after
}

// What was sent and not committed is known to nobody after a crash but by its announcement. If it
// is gone behind a gap, its delete must be reported all the same, or its readers keep it forever.
func TestAnnouncedDeletedInGap(t *testing.T) {
	for _, c := range []struct {
		name string
		// before the crash, while the bridge is unavailable, and what is reported then
		before, away   func(r *rig)
		sent, reported []string
	}{
		{
			name:   "of an object that was new",
			before: func(r *rig) { r.Create("shop/b", nil) },
			away:   func(r *rig) { r.Delete("shop/b") },
			sent:   []string{"added b"}, reported: []string{"gap inferred", "deleted b inferred", "synced"},
		},
		{
			name:   "of one that was updated since",
			before: func(r *rig) { r.Create("shop/b", nil); r.Update("shop/b", nil) },
			away:   func(r *rig) { r.Delete("shop/b") },
			sent:   []string{"added b", "updated b"}, reported: []string{"gap inferred", "deleted b inferred", "synced"},
		},
		{
			name:   "of one that took a known name",
			before: func(r *rig) { r.Delete("shop/a"); r.Create("shop/a", nil) },
			away:   func(r *rig) { r.Delete("shop/a") },
			sent:   []string{"deleted a", "added a"}, reported: []string{"gap inferred", "deleted a inferred", "deleted a inferred", "synced"},
		},
		{
			name:   "of one whose name is another's now",
			before: func(r *rig) { r.Create("shop/b", nil) },
			away:   func(r *rig) { r.Delete("shop/b"); r.Create("shop/b", nil) },
			sent:   []string{"added b"}, reported: []string{"gap inferred", "deleted b inferred", "added b inferred", "synced"},
		},
		{
			name:   "but not of one that is still there",
			before: func(r *rig) { r.Create("shop/b", nil) },
			away:   func(r *rig) { r.Update("shop/b", nil) },
			sent:   []string{"added b"}, reported: []string{"gap inferred", "added b inferred", "synced"},
		},
		{
			name: "of each of the lives of a name",
			before: func(r *rig) {
				for range 3 {
					r.Create("shop/b", nil)
					r.Delete("shop/b")
				}
			},
			away:     func(*rig) {},
			sent:     []string{"added b", "deleted b", "added b", "deleted b", "added b", "deleted b"},
			reported: []string{"gap inferred", "deleted b inferred", "deleted b inferred", "deleted b inferred", "synced"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t, b)
				r.cfg.CommitInterval = time.Hour
				r.Create("shop/a", nil)
				r.start()
				testkit.OK(t, func() error { _, err := r.end(); return err }()) // a is committed
				r.start()
				expect(t, b, "added a", "synced")
				c.before(r)
				r.settle()
				expect(t, b, c.sent...)
				r.crash()
				c.away(r)
				r.Skip(1)
				r.Expire()
				r.start()
				expect(t, b, c.reported...)
				sameDeathSameID(t, b)
				_, err := r.end()
				testkit.OK(t, err)
				r.start()
				expect(t, b) // it is reported once
				_, err = r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// A delete that the watch reported before the crash and a list infers after it have one id, and say
// different things. A broker that is read back has the first, so it is not sent the second.
func TestAnnouncedDeleteInBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t)
		r.addSink(b.Name, recaller{b.Connect(0)})
		r.cfg.CommitInterval = time.Hour
		r.Create("shop/a", nil)
		r.start()
		testkit.OK(t, func() error { _, err := r.end(); return err }()) // a is committed
		r.start()
		r.Create("shop/b", nil)
		r.Delete("shop/b")
		r.Delete("shop/a")
		r.settle()
		expect(t, b, "added a", "synced", "added b", "deleted b", "deleted a")
		r.crash()
		r.Skip(1)
		r.Expire()
		r.start()
		expect(t, b, "gap inferred", "synced")
		sameDeathSameID(t, b)
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// sameDeathSameID sees that deletes have the ids of their objects, and have their last known state.
func sameDeathSameID(t *testing.T, b *testkit.Broker) {
	t.Helper()
	for _, rec := range b.Records() {
		if !strings.HasSuffix(rec.Type, ".deleted") {
			continue
		}
		if rec.ID != rec.UID+"/deleted" || !strings.Contains(string(rec.Data), rec.UID) {
			t.Errorf("%s with %s", describe(rec), rec.Data)
		}
	}
}

// A first snapshot that a crash cut short is completed by the next.
func TestCrashInFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.cfg.CommitInterval = time.Hour
		r.Create("shop/a", nil)
		r.Create("shop/b", nil)
		r.start()
		expect(t, b, "added a", "added b", "synced")
		r.crash()
		r.Delete("shop/b")
		r.start()
		expect(t, b, "gap inferred", "added a", "deleted b inferred", "synced")
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// After a crash without a gap, the watch reports what was announced.
// When the versions in between are there, the watch reports them and there is nothing to infer.
func TestAnnouncedWithoutGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.start()
		_, err := r.end()
		testkit.OK(t, err)
		r.cfg.CommitInterval = time.Hour
		r.start()
		r.Create("shop/a", nil)
		r.settle()
		expect(t, b, "synced", "added a")
		r.crash()
		r.Delete("shop/a")
		r.start()
		expect(t, b, "added a", "deleted a")
		_, err = r.end()
		testkit.OK(t, err)
		r.Skip(1)
		r.Expire()
		r.start()
		expect(t, b, "gap inferred", "synced")
		_, err = r.end()
		testkit.OK(t, err)
	})
}
