package disk

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// directory is opened to be synced: what lies behind that is in the file system's own journal, so
// it may be repeated.
type directory struct {
	vfs.File
	fs *FS
}

// Sync implements vfs.File.
func (d *directory) Sync() error { return d.fs.try(d.File.Sync) }

// table is a file that Pebble can recreate: sorted tables, options.
type table struct {
	vfs.File
	fs   *FS
	name string
}

// Write implements vfs.File.
func (t *table) Write(p []byte) (written int, err error) {
	err = t.fs.try(func() error {
		n, err := t.File.Write(p[written:])
		written += n
		return err
	})
	return written, err
}

// WriteAt implements vfs.File.
func (t *table) WriteAt(p []byte, offset int64) (written int, err error) {
	err = t.fs.try(func() error {
		n, err := t.File.WriteAt(p[written:], offset+int64(written))
		written += n
		return err
	})
	return written, err
}

// Sync implements vfs.File.
func (t *table) Sync() error { return t.failLater(t.File.Sync()) }

// SyncData implements vfs.File.
func (t *table) SyncData() error { return t.failLater(t.File.SyncData()) }

// SyncTo implements vfs.File.
func (t *table) SyncTo(length int64) (full bool, err error) {
	full, err = t.File.SyncTo(length)
	return full, t.failLater(err)
}

// failLater passes on that a sync failed, when the disk takes writes again: Pebble makes the table
// again at once.
func (t *table) failLater(err error) error {
	_ = t.fs.retry(err, func() error { return t.fs.probe(t.name + ".probe") }) // err says all of it
	return err
}

// probe writes and syncs a little.
func (f *FS) probe(name string) error {
	file, err := f.FS.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, 4096))
	return errors.Join(err, file.Sync(), file.Close(), f.FS.Remove(name))
}
