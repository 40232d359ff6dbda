package informer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestSync(t *testing.T) {
	t.Run("a change of its object that waited before it takes its place", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			blocked := make(chan struct{})
			r := newRig(t, memory(t), []*outbox{out}, func(c *informer.StagesConfig) {
				c.Listeners[0].Resync = time.Minute
				c.Owners = func(obj *resource.Object) []resource.Owner {
					if obj.Name == "slow" {
						<-blocked
					}
					return nil
				}
			})
			r.list(initial, "10", "a@1", "b@2")
			synctest.Wait()
			out.taken()
			testkit.OK(t, r.committer.Commit())
			r.add("slow", "11") // keeps the controller from deciding what follows
			synctest.Wait()
			r.update("a", "12")
			time.Sleep(time.Minute)
			synctest.Wait()
			close(blocked)
			synctest.Wait()
			synced := func(object string) string {
				return fmt.Sprintf("resource.synced %s/sync/%d", object, time.Now().UnixNano()/int64(time.Minute))
			}
			testkit.Want(t, out.taken(), "resource.added slow uslow/11", "resource.updated a ua/12", // and no Synced of a
				synced("b ub/2"), synced("slow uslow/11"))
			time.Sleep(time.Minute)
			synctest.Wait()
			testkit.Want(t, out.taken(), synced("a ua/12"), synced("b ub/2"), synced("slow uslow/11"))
			r.stop()
		})
	})
	t.Run("that of a snapshot comes behind the change", func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out})
		r.add("a", "1")
		testkit.OK(t, r.fifo.Snapshot(t.Context(), "shop/a", 1, 77))
		r.stop()
		testkit.Want(t, out.taken(), "resource.added a ua/1", "resource.synced a ua/1/sync/77 initial")
	})
}
