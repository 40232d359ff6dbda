package disk

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxTail bounds what is kept of a journal in memory: so much that was not synced is synced.
const maxTail = 4 << 20

// journal is a file that nothing else can replace: it remembers what was written since the last
// sync, since after a sync that failed that is the only copy that is sure to be there.
type journal struct {
	table
	written int64 // bytes
	tail    tail  // the last of them: what is not synced
	named   bool  // its name is on disk
}

// Write implements vfs.File.
func (j *journal) Write(p []byte) (int, error) {
	if j.tail.length >= maxTail {
		if err := j.Sync(); err != nil {
			return 0, err
		}
	}
	before := j.tail.length
	j.tail.append(p) // before it is written: that may change p
	n, err := j.table.Write(p)
	j.tail.truncate(before + n)
	j.written += int64(n)
	return n, err
}

// Sync implements vfs.File.
func (j *journal) Sync() error { return j.synced(j.File.Sync()) }

// SyncData implements vfs.File.
func (j *journal) SyncData() error { return j.synced(j.File.SyncData()) }

// SyncTo implements vfs.File. It promises nothing, so it does nothing else than Sync would.
func (j *journal) SyncTo(int64) (full bool, err error) { return true, j.SyncData() }

// synced ends a sync. When the disk did not take what was to be synced, that is written once more,
// until it does.
func (j *journal) synced(err error) error {
	if err = j.fs.retry(err, j.rewrite); err != nil {
		return err
	}
	if !j.named {
		// Pebble syncs the directory only when it has put the name of a new MANIFEST there too,
		// which a crash could keep without the file.
		if err := j.fs.try(func() error { return j.fs.syncDir(j.fs.PathDir(j.name)) }); err != nil {
			return err
		}
		j.named = true
	}
	j.tail.truncate(0)
	if j.fs.cfg.Synced != nil {
		j.fs.cfg.Synced(j.name, j.written)
	}
	return nil
}

func (f *FS) syncDir(name string) error {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// rewrite writes what is not synced in its place, over a second handle: the kernel reports a failed
// sync only once to the first.
func (j *journal) rewrite() error {
	again, err := j.fs.FS.OpenReadWrite(j.name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err = j.tail.writeAt(again, j.written-int64(j.tail.length)); err == nil {
		err = again.Sync()
	}
	return errors.Join(err, again.Close())
}
