package testkit

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// NarrowDisk is a disk of 1 GiB that says how much is left on it, and counts how often it is asked.
type NarrowDisk struct {
	vfs.FS
	Free  atomic.Uint64
	Asked atomic.Int64
}

// GetDiskUsage implements vfs.NarrowDisk.
func (f *NarrowDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	f.Asked.Add(1)
	return vfs.DiskUsage{AvailBytes: f.Free.Load(), TotalBytes: 1 << 30}, nil
}
