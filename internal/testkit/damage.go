package testkit

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Damage is one change to one file of a directory.
type Damage struct {
	Name string
	// Do changes a file. older is the same directory at an earlier time.
	Do func(t *testing.T, random *rand.Rand, file, older string)
}

// Damages are what can happen to a file of a database.
var Damages = []Damage{
	{"a flipped bit", rewrite(func(random *rand.Rand, data []byte) []byte {
		if len(data) > 0 {
			data[random.IntN(len(data))] ^= 1 << random.IntN(8)
		}
		return data
	})},
	{"cut", rewrite(func(random *rand.Rand, data []byte) []byte {
		return data[:random.IntN(len(data)+1)]
	})},
	{"zeros", rewrite(func(random *rand.Rand, data []byte) []byte {
		clear(data[random.IntN(len(data)+1):])
		return data
	})},
	{"missing", func(t *testing.T, _ *rand.Rand, file, _ string) {
		t.Helper()
		OK(t, os.Remove(file))
	}},
	{"swapped with another", func(t *testing.T, random *rand.Rand, file, _ string) {
		t.Helper()
		others, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
		OK(t, err)
		other := others[random.IntN(len(others))]
		if other == file {
			return
		}
		OK(t, errors.Join(os.Rename(file, file+".x"), os.Rename(other, file),
			os.Rename(file+".x", other)))
	}},
	{"of an older copy", func(t *testing.T, _ *rand.Rand, file, older string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(older, filepath.Base(file)))
		if err != nil {
			OK(t, os.Remove(file))
			return
		}
		OK(t, os.WriteFile(file, data, 0o600))
	}},
}

// rewrite is a damage of a file's bytes.
func rewrite(change func(random *rand.Rand, data []byte) []byte) func(*testing.T, *rand.Rand, string, string) {
	return func(t *testing.T, random *rand.Rand, file, _ string) {
		t.Helper()
		data, err := os.ReadFile(file)
		OK(t, err)
		OK(t, os.WriteFile(file, change(random, data), 0o600))
	}
}

// RandomFault lets up to 20 operations of a disk fail in a row, reads and writes alike. It is an
// errorfs.Injector.
type RandomFault struct {
	Err error

	mu           sync.Mutex
	after, times int // guarded by mu: operations until it fails, and that fail
}

// NewRandomFault chooses one of the first operations, and an error.
func NewRandomFault(random *rand.Rand, operations int) *RandomFault {
	errs := []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.EDQUOT}
	return &RandomFault{
		Err: errs[random.IntN(len(errs))], after: random.IntN(operations), times: 1 + random.IntN(20),
	}
}

// MaybeError implements errorfs.Injector.
func (f *RandomFault) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileClose {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.after > 0:
		f.after--
	case f.times > 0:
		f.times--
		return f.Err
	}
	return nil
}

// String implements errorfs.Injector.
func (f *RandomFault) String() string { return f.Err.Error() }

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
