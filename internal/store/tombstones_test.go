package store_test

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// buried leaves tombstones of n objects at version 1000.
func buried(t *testing.T, db *store.DB, ix *store.Indexer, n int) {
	t.Helper()
	b := db.NewBatch()
	for i := range n {
		key := resource.Key(fmt.Sprintf("shop/p%06d", i))
		b.Settle(ix, key, store.NewState{Record: store.Record{UID: fmt.Sprint("u", i), Version: "1000", Deleted: true}, Seq: uint64(i + 1)})
	}
	testkit.OK(t, b.Commit())
}

func graves(t *testing.T, ix *store.Indexer) int {
	t.Helper()
	n, err := ix.Tombstones()
	testkit.OK(t, err)
	return n
}

// Many tombstones are dropped in several batches.
func TestTombstoneBatches(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db)
	buried(t, db, ix, 25_000)
	b := db.NewBatch()
	more := b.SetPosition(ix, "1001", 0)
	if size := b.Len(); size > 2<<20 {
		t.Errorf("the batch has %d bytes", size)
	}
	testkit.OK(t, b.Commit())
	for _, left := range []int{15_000, 5_000, 0} {
		if got := graves(t, ix); got != left || more != (left > 0) {
			t.Fatalf("%d tombstones are left, and more is %v; want %d", got, more, left)
		}
		b := db.NewBatch()
		more = b.DropPassed(ix, "1001")
		testkit.OK(t, b.Commit())
	}
	buried(t, db, ix, 25_000)
	testkit.OK(t, ix.Rewind())
	if got := graves(t, ix); got != 0 {
		t.Errorf("%d tombstones are left", got)
	}
}

// Another selection deletes all tombstones.
func TestTombstonesOfSelection(t *testing.T) {
	db := openDB(t, "")
	cfg := store.IndexerConfig{Name: "all/pods", Type: pods, Scope: "labels=a"}
	ix, err := db.Indexer(cfg)
	testkit.OK(t, err)
	buried(t, db, ix, 25_000)
	cfg.Scope = "labels=b"
	ix, err = db.Indexer(cfg)
	testkit.OK(t, err)
	if got := graves(t, ix); got != 0 {
		t.Errorf("%d tombstones are left", got)
	}
}
