package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockDir keeps a second server out of the directory: NATS does not, and two servers damage each
// other's streams. The lock ends with the process.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, "bridge.lock"))
	if err != nil {
		return nil, fmt.Errorf("store directory %s is in use by another process, or can't be "+
			"locked: %w", dir, err)
	}
	// the process is done with it; nothing can be done about an error
	return func() { _ = lock.Close() }, nil
}
