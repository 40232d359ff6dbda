package store_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// measured is a disk of 10 GiB that says how much is left on it.
type measured struct {
	vfs.FS
	free *atomic.Uint64
}

func (m measured) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: m.free.Load(), TotalBytes: 10 << 30}, nil
}

func TestDiskShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		db, err := store.Open(statedb.Options{Dir: "state", FS: measured{vfs.NewMem(), &free}})
		testkit.OK(t, err)
		defer db.Close()
		ix := newIndexer(t, db)
		const gib = 1 << 30
		for _, c := range []struct {
			free uint64
			used int64
			want bool
		}{
			{9 * gib, gib, true},
			{5 * gib / 2, 7 * gib, true},
			{2 * gib, 7 * gib, false}, // the flood of one resource
			{2 * gib, gib, true},      // another one meanwhile
			{32 << 20, 0, false},      // less than the reserve
		} {
			free.Store(c.free)
			time.Sleep(2 * time.Second) // it is checked once a second
			testkit.OK(t, db.NewBatch().Commit())
			if got := ix.Log().Room(c.used); got != c.want {
				t.Errorf("%d bytes are used, %d are free: room %v", c.used, c.free, got)
			}
		}
	})
}
