// Package narrowdisk is a nearly full disk for tests. It is not in testkit, so that the modules
// which use testkit do not need Pebble.
package narrowdisk

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a disk of 1 GiB that says how much is left on it, and counts how often it is asked.
type FS struct {
	vfs.FS
	Free  atomic.Uint64
	Asked atomic.Int64
}

// GetDiskUsage implements vfs.FS.
func (f *FS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	f.Asked.Add(1)
	return vfs.DiskUsage{AvailBytes: f.Free.Load(), TotalBytes: 1 << 30}, nil
}
