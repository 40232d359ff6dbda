package testkit

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// NarrowFS is a disk of 1 GiB that says how much is left on it, and counts how often it is asked.
type NarrowFS struct {
	vfs.FS
	Free  atomic.Uint64
	Asked atomic.Int64
}

// GetDiskUsage implements vfs.FS.
func (n *NarrowFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	n.Asked.Add(1)
	return vfs.DiskUsage{AvailBytes: n.Free.Load(), TotalBytes: 1 << 30}, nil
}
