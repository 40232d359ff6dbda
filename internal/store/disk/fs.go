package disk

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config of an FS. Zero values mean the documented default.
type Config struct {
	// Retry is how long to wait between attempts; default 1 s.
	Retry time.Duration
	// Changed is called with the reason when the disk begins to refuse writes, and nil when it has
	// taken everything that waited. It is called by the writing goroutine, one call at a time, and
	// must not write itself. May be nil.
	Changed func(why error)
	// Failed is called when a write fails for another reason than the disk's space: the disk is
	// broken. It has to end the process; the operation never returns, since Pebble answers such an
	// error with a crash. Nil: the error is passed on.
	Failed func(err error)
}

// FS is a file system that waits while the disk under it is full or read-only. It does so from the
// call of BePatient on: before it, and where Failed is nil, errors are passed on.
type FS struct {
	vfs.FS
	cfg     Config
	patient atomic.Bool
	stall   stall
	sums    sums
}

// New wraps a file system for the database of a directory.
func New(inner vfs.FS, dir string, cfg Config) *FS {
	cfg.Retry = cmp.Or(cfg.Retry, time.Second)
	return &FS{
		FS: inner, cfg: cfg, stall: stall{begun: make(chan struct{}), changed: cfg.Changed},
		sums: sums{files: inner, dir: dir},
	}
}

// Close closes the file beside the database.
func (f *FS) Close() { f.sums.close() }

// BePatient makes operations wait from now on.
func (f *FS) BePatient() { f.patient.Store(true) }

// Unavailable reports whether an error means that a disk takes no writes, and may take them again.
func Unavailable(err error) bool { return Full(err) || ReadOnly(err) }

// Full reports whether an error means that a disk, or what one may use of it, is full.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ReadOnly reports whether an error means that a disk is mounted read-only.
func ReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// Remedy is what to do about a disk that takes no writes.
func Remedy(why error) string {
	if ReadOnly(why) {
		return "mount it to be written"
	}
	return "free space, or make the volume larger"
}

func (f *FS) waitsFor(err error) bool { return err != nil && f.patient.Load() && Unavailable(err) }

// try repeats an operation until the disk takes it.
func (f *FS) try(op func() error) error { return f.retry(op(), op) }

// retry repeats an operation that ended with err until the disk takes it.
func (f *FS) retry(err error, op func() error) error {
	if f.waitsFor(err) {
		err = f.wait(err, op)
	}
	if err != nil && f.patient.Load() && f.cfg.Failed != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, fs.ErrExist) {
		f.cfg.Failed(err)
		select {}
	}
	return err
}

// wait repeats an operation until it does not fail for want of space.
func (f *FS) wait(err error, op func() error) error {
	f.stall.enter(err)
	defer f.stall.leave()
	for f.waitsFor(err) {
		time.Sleep(f.cfg.Retry)
		err = op()
	}
	return err
}

// Create implements vfs.FS.
func (f *FS) Create(name string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.try(func() error {
		file, err = f.FS.Create(name, category)
		return err
	})
	if err == nil {
		f.sums.created(f.sums.base(name))
	}
	return f.wrap(name, file, err)
}

// OpenReadWrite implements vfs.FS.
func (f *FS) OpenReadWrite(
	name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (file vfs.File, err error) {
	err = f.try(func() error {
		file, err = f.FS.OpenReadWrite(name, category, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &table{File: file, fs: f, name: name}, nil
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(
	oldName, newName string, category vfs.DiskWriteCategory,
) (file vfs.File, err error) {
	waited := false
	f.sums.remove(f.sums.base(oldName))
	err = f.try(func() error {
		file, err = f.FS.ReuseForWrite(oldName, newName, category)
		if waited && errors.Is(err, fs.ErrNotExist) { // the attempt before had renamed it
			file, err = f.FS.Create(newName, category)
		}
		waited = true
		return err
	})
	return f.wrap(newName, file, err)
}

// OpenDir implements vfs.FS.
func (f *FS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &directory{File: dir, fs: f}, nil
}

// wrap makes a new file wait too.
func (f *FS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	t := table{File: file, fs: f, name: name}
	if isJournal(f.PathBase(name)) {
		return &journal{table: t}, nil
	}
	return &t, nil
}

// isJournal reports whether a file is one of Pebble's that can't be recreated from others: its log
// and its list of files.
func isJournal(base string) bool {
	return strings.HasSuffix(base, ".log") || strings.HasPrefix(base, "MANIFEST-")
}

// Link implements vfs.FS.
func (f *FS) Link(oldName, newName string) error {
	return f.try(func() error { return f.FS.Link(oldName, newName) })
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.sums.remove(f.sums.base(name))
	return f.try(func() error { return f.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error {
	return f.try(func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	f.sums.remove(f.sums.base(oldName))
	return f.try(func() error { return f.FS.Rename(oldName, newName) })
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string, perm fs.FileMode) error {
	return f.try(func() error { return f.FS.MkdirAll(dir, perm) })
}

// Unwrap implements vfs.FS.
func (f *FS) Unwrap() vfs.FS { return f.FS }

// stall counts the operations that wait for the disk.
type stall struct {
	changed func(error)
	// held while changed is called, so that its calls come one at a time and in order
	calling sync.Mutex

	mu      sync.Mutex
	waiting int           // guarded by mu
	why     error         // guarded by mu: of the first that waits
	begun   chan struct{} // guarded by mu: closed when something waits, replaced when nothing does
}

func (s *stall) enter(why error) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	s.waiting++
	first := s.waiting == 1
	if first {
		s.why = why
		close(s.begun)
	}
	s.mu.Unlock()
	if first && s.changed != nil {
		s.changed(why)
	}
}

func (s *stall) leave() {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	s.waiting--
	last := s.waiting == 0
	if last {
		s.why = nil
		s.begun = make(chan struct{})
	}
	s.mu.Unlock()
	if last && s.changed != nil {
		s.changed(nil)
	}
}

// Err is why something waits for the disk, nil when nothing does.
func (f *FS) Err() error {
	f.stall.mu.Lock()
	defer f.stall.mu.Unlock()
	return f.stall.why
}

// Stalled is closed as soon as something waits for the disk. When nothing does any more, the next
// call gives another channel.
func (f *FS) Stalled() <-chan struct{} {
	f.stall.mu.Lock()
	defer f.stall.mu.Unlock()
	return f.stall.begun
}

// Compactions runs one compaction of a database at a time, as Pebble does by default.
// Pebble's own scheduler checks ten times a second whether more are allowed meanwhile, even when
// nothing happens. Here that never changes, so a compaction that waits begins when the one
// before ends. It is for one database.
func Compactions() pebble.CompactionScheduler {
	return pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
}
