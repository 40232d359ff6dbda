package informer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// omitting has the stream of the first listener leave versions out.
func omitting(keys ...string) option {
	return func(c *informer.StagesConfig) {
		maker, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods, Omits: keys})
		if err != nil {
			panic(err)
		}
		c.Listeners[0].Maker = maker
	}
}

// TestOmits changes what a stream leaves out while no list says so.
func TestOmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		run := func(lines []string, options ...option) {
			t.Helper()
			out, other := newOutbox(), newOutbox()
			r := newRig(t, db, []*outbox{out, other}, options...)
			synctest.Wait()
			testkit.Want(t, out.taken(), lines...)
			testkit.Want(t, other.taken())
			r.stop()
		}
		out := newOutbox()
		r := newRig(t, db, []*outbox{out}) // the second sink is new later, and has not what was before
		r.list(initial, "48", "a@47")
		out.wait(t, 2)
		r.stop()
		run(nil)
		run([]string{"informer.progress  all/pods/progress/48/filter"}, omitting("filter"))
		run(nil, omitting("filter"))
		run([]string{"informer.progress  all/pods/progress/48/filter+latest"}, omitting("filter", "latest"))
		run([]string{"informer.progress  all/pods/progress/48"})
	})
	t.Run("a new stream has it before its first event", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := memory(t)
			for _, want := range [][]string{
				{"informer.progress  all/pods/progress/48/filter", "resource.added a ua/49"},
				{"resource.updated a ua/50"},
			} {
				out := newOutbox()
				r := newRig(t, db, []*outbox{out}, omitting("filter"))
				synctest.Wait()
				testkit.Want(t, out.taken())
				if len(want) > 1 {
					r.add("a", "49")
				} else {
					r.do("update a 50")
				}
				testkit.Want(t, out.wait(t, len(want)), want...)
				r.stop()
			}
		})
	})
	t.Run("it is reported again where the sink did not have it before a crash", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, out := memory(t), newOutbox()
			out.setHold(true)
			r := newRig(t, db, []*outbox{out}, omitting("filter"))
			r.add("a", "49")
			synctest.Wait()
			testkit.OK(t, r.committer.Commit())
			r.crash()
			out = newOutbox()
			r = newRig(t, db, []*outbox{out}, omitting("filter"))
			r.add("a", "49")
			testkit.Want(t, out.wait(t, 2), "informer.progress  all/pods/progress/48/filter", "resource.added a ua/49")
			r.stop()
		})
	})
	t.Run("a list reports it to a new stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, omitting("filter"))
			r.list(initial, "48", "a@47")
			r.do("update a 50")
			testkit.Want(t, out.wait(t, 3), "resource.added a ua/47 initial", "informer.synced  all/pods/synced/48", "resource.updated a ua/50")
			r.stop()
		})
	})
}

func TestProgress(t *testing.T) {
	every := func(c *informer.StagesConfig) { c.Listeners[0].Progress = time.Minute }
	t.Run("a bookmark is reported behind everything before it, at most once in the time given", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out, other := newOutbox(), newOutbox()
			r := newRig(t, memory(t), []*outbox{out, other}, every)
			out.setHold(true)
			r.add("a", "11")
			r.bookmark("20")
			synctest.Wait()
			testkit.Want(t, out.taken(), "resource.added a ua/11")
			out.release()
			synctest.Wait()
			testkit.Want(t, out.taken(), "informer.progress  all/pods/progress/20")
			r.bookmark("30")
			synctest.Wait()
			testkit.Want(t, out.taken())
			time.Sleep(time.Minute)
			r.bookmark("30")
			r.bookmark("40")
			synctest.Wait()
			testkit.Want(t, out.taken(), "informer.progress  all/pods/progress/30")
			time.Sleep(time.Minute)
			r.bookmark("30") // reported already
			synctest.Wait()
			testkit.Want(t, out.taken())
			testkit.Want(t, other.taken(), "resource.added a ua/11")
			r.stop()
			if got := r.informer.Log().Status().Watermark; got != "40" {
				t.Errorf("watermark %s, want 40", got)
			}
		})
	})
	t.Run("a listener that is sent the newest states is sent it too, behind them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, every, latest(1))
			out.setHold(true)
			r.do("add z 9", "add a 10", "update a 11")
			synctest.Wait()
			r.bookmark("20")
			out.release()
			r.do("update a 21")
			synctest.Wait()
			testkit.Want(t, out.taken(), "resource.added z uz/9", "resource.added a ua/11",
				"informer.progress  all/pods/progress/20", "resource.updated a ua/21")
			r.stop()
		})
	})
	t.Run("it has a copy in each partition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, every, broadcasting(out))
			r.bookmark("20")
			synctest.Wait()
			testkit.Want(t, out.taken(), copies("informer.progress  all/pods/progress/20/partition/%d")...)
			r.stop()
		})
	})
}
