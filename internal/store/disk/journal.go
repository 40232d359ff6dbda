package disk

import (
	"errors"
	"hash/crc32"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxTail bounds what is kept of a journal in memory: so much that was not synced is synced.
const maxTail = 4 << 20

// journal is a file that nothing else can replace: it remembers what was written since the last
// sync, since after a sync that failed that is the only copy that is sure to be there.
type journal struct {
	table
	written int64  // bytes
	sum     uint32 // of them
	tail    tail   // the last of them: what is not synced
	named   bool   // its name is on disk
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
	sum := crc32.Update(j.sum, castagnoli, p)
	n, err := j.table.Write(p)
	j.tail.truncate(before + n)
	j.written += int64(n)
	if n == len(p) { // else nothing is synced behind it: Pebble ends with an error of a journal
		j.sum = sum
	}
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
	j.fs.sums.set(sum{j.fs.sums.base(j.name), j.written, j.sum})
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

// directory is opened to be synced: what lies behind that is in the file system's own journal, so
// it may be repeated.
type directory struct {
	vfs.File
	fs *FS
}

// Sync implements vfs.File.
func (d *directory) Sync() error {
	err := d.fs.try(d.File.Sync)
	if err == nil {
		d.fs.sums.syncedDir()
	}
	return err
}

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

// Stat implements vfs.File. Pebble panics where it can't look at a log that it has just begun.
func (t *table) Stat() (info vfs.FileInfo, err error) {
	err = t.fs.try(func() error {
		info, err = t.File.Stat()
		return err
	})
	return info, err
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

// pieceBytes is how much a piece of a tail holds.
const pieceBytes = 64 << 10

type piece [pieceBytes]byte

// pieces are used again, by any journal: Pebble begins a log with each memtable, and memory that
// grew with each of them again was a fifth of all that a first snapshot allocated.
var pieces = sync.Pool{New: func() any { return new(piece) }}

// tail is memory to which bytes are added behind others, without moving those. The zero tail is
// empty.
type tail struct {
	pieces []*piece // full, but for the last
	length int
}

func (t *tail) append(p []byte) {
	for len(p) > 0 {
		if t.length == len(t.pieces)*pieceBytes {
			t.pieces = append(t.pieces, pieces.Get().(*piece))
		}
		n := copy(t.pieces[len(t.pieces)-1][t.length%pieceBytes:], p)
		t.length += n
		p = p[n:]
	}
}

// truncate forgets what lies behind the first bytes.
func (t *tail) truncate(length int) {
	keep := (length + pieceBytes - 1) / pieceBytes
	for i, p := range t.pieces[keep:] {
		pieces.Put(p)
		t.pieces[keep+i] = nil
	}
	t.pieces, t.length = t.pieces[:keep], length
}

// writeAt writes all of it.
func (t *tail) writeAt(w io.WriterAt, offset int64) error {
	left := t.length
	for _, p := range t.pieces {
		n := min(left, pieceBytes)
		if _, err := w.WriteAt(p[:n], offset); err != nil {
			return err
		}
		left, offset = left-n, offset+int64(n)
	}
	return nil
}
