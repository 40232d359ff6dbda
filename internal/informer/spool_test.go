package informer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// spooling writes what is pending to disk soon, and memory and windows small, so that listeners
// have to read from there.
func spooling(c *informer.StagesConfig) {
	waiting(20 * time.Millisecond)(c)
	c.ChangeLog.MemoryBytes = 64 << 10
	for i := range c.Listeners {
		c.Listeners[i].Window = 100
	}
}

// patience is how long something may take that takes a moment on a machine that does nothing else.
const patience = 2 * time.Minute

func (o *outbox) setHold(hold bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hold = hold
}

// updates are the lines of pod "a" from one version to, and without, another.
func updates(from, to int) []string {
	var lines []string
	for v := from; v < to; v++ {
		lines = append(lines, fmt.Sprintf("resource.updated a ua/%d", v))
	}
	return lines
}

// Pending changes go to disk, and memory stays bounded.
func TestSpool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, spooling)
		r.add("a", "99")
		out.wait(t, 1)
		out.setHold(true)
		for v := 100; v < 4100; v++ {
			r.update("a", fmt.Sprint(v)) // would block forever if the log could not overflow
		}
		r.bookmark("5000")
		testkit.Eventually(t, "the watermark passes what lies on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "5000"
		})
		s := r.informer.Status()
		const batch = 256 * 1024 // a batch may pass the bound by its own size
		if s.Log.Bytes > 64<<10+batch || s.Log.DiskBytes == 0 {
			t.Errorf("%d bytes in memory and %d on disk", s.Log.Bytes, s.Log.DiskBytes)
		}
		out.release()
		testkit.Want(t, out.wait(t, 4000), updates(100, 4100)...)
		r.stop()
		if s := r.informer.Status(); s.Log.DiskBytes != 0 {
			t.Errorf("%d bytes are left on disk when all is settled", s.Log.DiskBytes)
		}
		if first, next, err := r.indexer.Log().Bounds(); err != nil || first != next {
			t.Errorf("entries %d to %d are left on disk, %v", first, next, err)
		}
	})
}

// After a crash the log on disk is sent first, and in order.
func TestSpoolAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, spooling)
		r.list(initial, "98", "a@97")
		out.wait(t, 2)
		out.setHold(true)
		for v := 100; v < 1100; v++ {
			r.update("a", fmt.Sprint(v))
		}
		r.bookmark("2000")
		testkit.Eventually(t, "everything is on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "2000"
		})
		// The process dies; what it had with the publisher is never settled.
		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after}, spooling)
		r2.update("a", "1099") // a replay: covered by what lies on disk
		r2.update("a", "2001")
		testkit.Want(t, after.wait(t, 1001), append(updates(100, 1100), "resource.updated a ua/2001")...)
		if got := string(after.raw[0].Data); got != string(pod(t, "a", "100").Raw) {
			t.Errorf("read back from disk: %s", got)
		}
		r2.stop()
	})
}

// A settled change is not sent again from disk.
func TestSpoolSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		out.setHold(true)
		r := newRig(t, db, []*outbox{out}, spooling)
		names := []string{"a", "b", "c", "d"}
		for n, name := range names {
			r.add(name, fmt.Sprint(100+n))
		}
		r.bookmark("200")
		out.wait(t, 4)
		testkit.Eventually(t, "everything is on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "200"
		})
		out.mu.Lock()
		held := out.held
		out.held = nil
		out.mu.Unlock()
		settle(held[1:2]) // b
		settle(held[3:4]) // d
		testkit.OK(t, r.committer.Commit())

		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after}, spooling)
		testkit.Want(t, after.wait(t, 2), "resource.added a ua/100", "resource.added c uc/102")
		r2.stop()
	})
}

// A stalled sink does not hold back another.
func TestSpoolStalledSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, dead := newOutbox(), newOutbox()
		dead.setHold(true)
		r := newRig(t, memory(t), []*outbox{dead, live}, spooling)
		r.add("a", "99")
		for v := 100; v < 3100; v++ {
			r.update("a", fmt.Sprint(v))
		}
		testkit.Want(t, live.wait(t, 3001)[1:], updates(100, 3100)...)
		dead.release()
		testkit.Want(t, dead.wait(t, 3001)[1:], updates(100, 3100)...)
		r.stop()
	})
}

// After a restart each sink gets what it has not had.
func TestSpoolAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		live, dead := newOutbox(), newOutbox()
		dead.setHold(true)
		r := newRig(t, db, []*outbox{live, dead}, spooling)
		for v := 100; v < 600; v++ {
			r.add("a", fmt.Sprint(v))
		}
		r.bookmark("1000")
		live.wait(t, 500)
		testkit.Eventually(t, "everything is on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "1000"
		})
		live2, dead2, fresh := newOutbox(), newOutbox(), newOutbox()
		swapped := func(c *informer.StagesConfig) { // the order in the configuration is another now, and a sink is new
			c.Listeners[0].Name, c.Listeners[1].Name, c.Listeners[2].Name = "sink-1", "sink-0", "fresh"
		}
		r2 := newRig(t, db, []*outbox{dead2, live2, fresh}, spooling, swapped)
		if got := dead2.wait(t, 500); got[0] != "resource.added a ua/100" || got[499] != "resource.updated a ua/599" {
			t.Errorf("the sink that was behind got %s … %s", got[0], got[499])
		}
		r2.update("a", "1001")
		testkit.Want(t, live2.wait(t, 1), "resource.updated a ua/1001")
		testkit.Want(t, fresh.wait(t, 1), "resource.updated a ua/1001")
		r2.stop()
	})
}

// A full disk budget stops reading, and drops nothing.
func TestSpoolDiskBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		out.setHold(true)
		r := newRig(t, memory(t), []*outbox{out}, spooling, func(c *informer.StagesConfig) { c.ChangeLog.SpoolBytes = 64 << 10 })
		done := make(chan struct{})
		go func() {
			defer close(done)
			for v := 100; v < 60100; v++ {
				if err := r.fifo.Add(t.Context(), pod(t, "a", fmt.Sprint(v))); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		testkit.Eventually(t, "the disk is full", func() bool { return r.informer.Status().Log.DiskBytes >= 64<<10 })
		time.Sleep(100 * time.Millisecond)
		const room = 64<<10 + 512<<10 // the bound, and what one round may add
		if s := r.informer.Status(); s.Log.DiskBytes > room {
			t.Errorf("%d bytes on disk", s.Log.DiskBytes)
		}
		select {
		case <-done:
			t.Error("reading continued")
		default:
		}
		out.release()
		// What was released makes room; the rest follows and is settled at once.
		if got := out.wait(t, 60000); got[59999] != "resource.updated a ua/60099" {
			t.Errorf("the last is %s", got[59999])
		}
		<-done
		r.stop()
	})
}

// A gap lies on disk in its place.
func TestGapOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, spooling)
		r.list(initial, "10", "a@1", "b@2")
		out.wait(t, 3)
		out.setHold(true)
		r.update("a", "11")
		r.list(expired, "20", "a@12")
		out.wait(t, 1)
		testkit.Eventually(t, "everything is on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "20"
		})
		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after}, spooling)
		testkit.Want(t, after.wait(t, 5),
			"resource.updated a ua/11",
			"informer.gap  all/pods/gap/3/20 inferred",
			"resource.updated a ua/12 inferred",
			"resource.deleted b ub/deleted inferred",
			"informer.synced  all/pods/synced/20")
		r2.stop()
	})
}

// A failing disk holds reading back until it works again.
func TestSpoolFailingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(statedb.Options{})
		testkit.OK(t, err)
		defer db.Close()
		out := newOutbox()
		out.setHold(true)
		broken := &brokenCommits{}
		r := newRig(t, db, []*outbox{out}, spooling, func(c *informer.StagesConfig) {
			broken.Committer = c.Committer
			c.Committer = broken
		})
		broken.fail(true)
		go func() {
			for v := 100; v < 2100; v++ {
				_ = r.fifo.Add(t.Context(), pod(t, "a", fmt.Sprint(v)))
			}
		}()
		testkit.Eventually(t, "it has tried", func() bool { return broken.tried() > 0 })
		if s := r.informer.Status(); s.Log.Bytes > 64<<10+256*1024 {
			t.Errorf("%d bytes in memory", s.Log.Bytes)
		}
		broken.fail(false)
		out.release()
		lines := out.wait(t, 2000)
		if !slices.Equal(lines[1:], updates(101, 2100)) {
			t.Error("not everything came, or not in order")
		}
		r.stop()
	})
}

// The informer ends while it waits for the disk.
func TestSpoolStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		out.setHold(true)
		r := newRig(t, memory(t), []*outbox{out}, spooling, func(c *informer.StagesConfig) { c.ChangeLog.SpoolBytes = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		for v := 100; ctx.Err() == nil && v < 1e6; v++ {
			_ = r.fifo.Add(ctx, pod(t, "a", fmt.Sprint(v)))
		}
		out.release()
		r.stop()
	})
}
