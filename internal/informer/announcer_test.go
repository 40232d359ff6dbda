package informer_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// slowDisk is a database on a disk whose fsync takes as long as asked.
func slowDisk(t *testing.T) (*store.DB, *atomic.Int64) {
	t.Helper()
	var fsync atomic.Int64 // a time.Duration
	slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if k := op.Kind; k == errorfs.OpFileSync || k == errorfs.OpFileSyncData || k == errorfs.OpFileSyncTo {
			time.Sleep(time.Duration(fsync.Load()))
		}
		return nil
	})
	db, err := store.Open(statedb.Options{Dir: "state", FS: errorfs.Wrap(vfs.NewMem(), slow)})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	return db, &fsync
}

func TestAnnouncements(t *testing.T) {
	t.Run("on a slow disk what adds an object waits for its commit, and no other object does", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, fsync := slowDisk(t)
			out := newOutbox()
			r := newRig(t, db, []*outbox{out})
			r.do("list 1 a@1")
			time.Sleep(time.Second)
			out.taken()
			fsync.Store(int64(time.Second))
			r.do("add b 2", "update a 3", "update b 4")
			time.Sleep(100 * time.Millisecond)
			testkit.Want(t, out.taken(), "resource.updated a ua/3")
			r.do("add c 5", "delete b 6", "update a 7")
			time.Sleep(100 * time.Millisecond)
			testkit.Want(t, out.taken(), "resource.updated a ua/7")
			// An update of b that came while b was being announced goes with that commit or with
			// the next.
			time.Sleep(2 * time.Second)
			testkit.Want(t, out.taken(), "resource.added b ub/2", "resource.updated b ub/4",
				"resource.added c uc/5", "resource.deleted b ub/deleted")
			fsync.Store(0)
			r.stop()
		})
	})
	t.Run("a change that waits for one commit is not passed by later ones of its object", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, fsync := slowDisk(t)
			out := newOutbox()
			r := newRig(t, db, []*outbox{out})
			fsync.Store(int64(time.Second))
			r.do("add b 2")
			time.Sleep(100 * time.Millisecond)
			r.do("update b 3", "add c 4")
			time.Sleep(time.Second) // b is announced, and c is being
			r.do("update b 5")
			time.Sleep(2 * time.Second)
			testkit.Want(t, out.taken(), "resource.added b ub/2", "resource.updated b ub/3",
				"resource.added c uc/4", "resource.updated b ub/5")
			fsync.Store(0)
			r.stop()
		})
	})
	t.Run("on a fast disk all changes are in the order of the stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, fsync := slowDisk(t)
			fsync.Store(int64(time.Millisecond))
			out := newOutbox()
			r := newRig(t, db, []*outbox{out})
			r.do("list 1 a@1")
			time.Sleep(time.Second)
			out.taken()
			r.do("add b 2", "update a 3", "update b 4")
			testkit.Want(t, out.wait(t, 3), "resource.added b ub/2", "resource.updated a ua/3", "resource.updated b ub/4")
			r.stop()
		})
	})
	t.Run("what is about all objects stays behind what waits for its commit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, fsync := slowDisk(t)
			out := newOutbox()
			r := newRig(t, db, []*outbox{out})
			r.do("list 1 a@1")
			time.Sleep(time.Second)
			out.taken()
			fsync.Store(int64(time.Second))
			r.do("add b 2", "update a 3")
			time.Sleep(100 * time.Millisecond)
			testkit.Want(t, out.taken(), "resource.updated a ua/3")
			r.quarantine("", "4")
			r.do("update a 5")
			testkit.Want(t, out.wait(t, 3), "resource.added b ub/2",
				"informer.quarantined  all/pods/quarantined/too-deep/u/4", "resource.updated a ua/5")
			fsync.Store(0)
			r.stop()
		})
	})
	t.Run("a run that ends settles everything that waited", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db, fsync := slowDisk(t)
			out := newOutbox()
			r := newRig(t, db, []*outbox{out})
			fsync.Store(int64(time.Second))
			r.do("add a 1", "add b 2")
			r.bookmark(resource.Version("3"))
			r.stop()
			testkit.Want(t, out.taken(), "resource.added a ua/1", "resource.added b ub/2")
			if s := r.informer.Log().Status(); s.Unsettled != 0 {
				t.Errorf("%+v", s)
			}
			fsync.Store(0)
		})
	})
}
