package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// Opener opens one database, and reports why it can't continue. Pebble reports that from deep
// within, with locks held, and must not get control back: the goroutine stays there, and another
// one has to act.
type Opener struct {
	log     *slog.Logger
	end     func(error)
	once    sync.Once
	opening atomic.Bool
	refused chan error // why the database can't be opened
}

// NewOpener makes an Opener. end is called once, when an open database can't continue.
func NewOpener(log *slog.Logger, end func(error)) *Opener {
	return &Opener{log: log, end: end, refused: make(chan error, 1)}
}

// Open opens the database of a directory, whose messages go to the log. On an FS it first checks
// that the database has everything that was synced: ErrDamaged, ErrNoManifest. It returns as an
// error what would end an open database: nothing runs on it yet.
func (o *Opener) Open(dir string, opts *pebble.Options) (*pebble.DB, error) {
	if files, ok := opts.FS.(*FS); ok {
		if err := checkUnlocked(files, dir); err != nil {
			return nil, err
		}
	}
	opts.Logger = pebbleLogger{o}
	var db *pebble.DB
	err := o.run(func() (err error) {
		db, err = pebble.Open(dir, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkTables(db, dir, opts); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkTables returns ErrDamaged where a table has other keys than the list of files says: it was
// swapped with another of the same size, which Pebble does not notice. It reads the first and the
// last block of each. What can't be read is left to Pebble, which reports that.
func checkTables(db *pebble.DB, dir string, opts *pebble.Options) error {
	levels, err := db.SSTables()
	for _, tables := range levels {
		for i := range tables {
			err = cmp.Or(err, checkTable(&tables[i].TableInfo, dir, opts))
		}
	}
	return err
}

func checkTable(known *pebble.TableInfo, dir string, opts *pebble.Options) error {
	name := fmt.Sprintf("%06d.sst", known.FileNum)
	file, err := opts.FS.Open(opts.FS.PathJoin(dir, name))
	if err != nil {
		return nil
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return file.Close()
	}
	table, err := sstable.NewReader(context.Background(), readable, opts.MakeReaderOptions())
	if err != nil {
		return readable.Close()
	}
	defer table.Close()
	it, err := table.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return nil
	}
	defer it.Close()
	first := it.First()
	isOther := first != nil && bytes.Compare(first.K.UserKey, known.Smallest.UserKey) < 0
	last := it.Last()
	if isOther || last != nil && bytes.Compare(last.K.UserKey, known.Largest.UserKey) > 0 {
		return fmt.Errorf("%s has the keys of another table: %w", name, ErrDamaged)
	}
	return nil
}

// Begin makes the first reads and writes of an open database, and closes it where they return an
// error. What would end an open database is an error too; then it is not closed, which would wait
// for what Pebble holds.
func (o *Opener) Begin(op, closeDB func() error) error {
	return o.run(func() error {
		if err := op(); err != nil {
			return errors.Join(err, closeDB())
		}
		return nil
	})
}

// run returns how op ended, or what Pebble has reported meanwhile: op may never return then.
func (o *Opener) run(op func() error) error {
	done := make(chan error, 1)
	o.opening.Store(true)
	defer o.opening.Store(false)
	go func() {
		defer func() {
			if why := recover(); why != nil { // as of a marker that can't be synced
				done <- asError(why)
			}
		}()
		done <- op()
	}()
	select {
	case err := <-done:
		return err
	case err := <-o.refused:
		return err
	}
}

// asError returns the value of a panic as an error, so that a caller still finds a full disk in it.
func asError(panicked any) error {
	if err, ok := panicked.(error); ok {
		return err
	}
	return fmt.Errorf("%v", panicked)
}

// checkUnlocked checks what was synced. Another process that has the database open removes files
// between two looks: then it returns that the database is locked.
func checkUnlocked(files *FS, dir string) error {
	err := files.sums.check()
	if err == nil {
		return nil
	}
	lock, lockErr := pebble.LockDirectory(dir, files)
	switch {
	case lockErr != nil && RefusalOf(lockErr) == Locked:
		return lockErr
	case lockErr != nil:
		return err
	}
	return errors.Join(files.sums.check(), lock.Close()) // the other one may have ended meanwhile
}

// Fail reports that the database can't continue, or can't be opened.
func (o *Opener) Fail(err error) {
	if o.opening.Load() {
		select {
		case o.refused <- err:
		default: // one reason is enough
		}
		return
	}
	o.once.Do(func() { o.end(err) })
}

// pebbleLogger passes Pebble's messages on. Its many Infof are useful to a debugger only.
type pebbleLogger struct{ opener *Opener }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.opener.log.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.opener.log.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf is called when Pebble's log or its list of files can't be written. There is nothing to
// save: what is settled is on disk.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := &FatalError{message: fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	l.opener.Fail(err)
	select {}
}

// FatalError is a message of Pebble's with its cause.
type FatalError struct {
	message string
	cause   error
}

// Error returns the first line of the message.
func (e *FatalError) Error() string {
	first, _, _ := strings.Cut(e.message, "\n")
	return first
}

// Unwrap returns the cause, nil for none.
func (e *FatalError) Unwrap() error { return e.cause }

// Refusal is why a database can't be opened, as far as its user can do something about that.
type Refusal int

const (
	// OtherRefusal is any other reason.
	OtherRefusal Refusal = iota
	// NewerFormat: a newer Pebble has written the files.
	NewerFormat
	// Locked: another process has the database open.
	Locked
	// NotWritable: the rights, or a read-only file system.
	NotWritable
	// NoSpace: the disk is full.
	NoSpace
)

// RefusalOf returns why Open has failed.
func RefusalOf(err error) Refusal {
	switch {
	case strings.Contains(err.Error(), "unknown format major version"):
		return NewerFormat
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EWOULDBLOCK),
		strings.Contains(err.Error(), "lock held"):
		return Locked
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return NotWritable
	case Full(err):
		return NoSpace
	}
	return OtherRefusal
}

// ErrNoManifest reports that a directory has data that no manifest names.
var ErrNoManifest = errors.New("there is data, and no MANIFEST that says which")

// HoldsDatabase reports whether a directory has files of Pebble.
func HoldsDatabase(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		return name == "LOCK" || strings.HasPrefix(name, "MANIFEST-") ||
			strings.HasPrefix(name, "marker.")
	})
}

// ErrAccess reports that other users may have written to a directory, or may read it.
var ErrAccess = errors.New("is not protected from other users")

// ProtectDir checks the directory of a database: its owner is this user or root, a link to it is
// not another user's, and no other user may use it. It tightens the mode where it may, and logs
// that; the rest is refused with the command that corrects it. A directory of root may be open to a
// group, as Kubernetes makes volumes. Call it when it is known that the directory is a database's.
func ProtectDir(dir string, log *slog.Logger) error {
	user := uint32(os.Geteuid())
	link, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := ownerOf(link); link.Mode()&fs.ModeSymlink != 0 && owner != user && owner != 0 {
		return fmt.Errorf("%w: it is a link of user %d: rm %q, or name the directory itself",
			ErrAccess, owner, dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := ownerOf(info)
	const group, others = fs.FileMode(0o070), fs.FileMode(0o007)
	mode := info.Mode().Perm()
	switch {
	case owner != user && owner != 0:
		return fmt.Errorf("%w: it belongs to user %d, and this is user %d: chown -R %d %q",
			ErrAccess, owner, user, user, dir)
	case mode&(group|others) == 0 || owner != user && mode&others == 0:
		return nil
	}
	if err := os.Chmod(dir, mode&^(group|others)); err != nil {
		return fmt.Errorf("%w: its mode is %04o: chmod go-rwx %q (%w)", ErrAccess, mode, dir, err)
	}
	level := slog.LevelInfo // Kubernetes opens what is in a volume to the group at each start
	if mode&others != 0 {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level,
		"other users could use a directory of the bridge; its mode is tightened, as by chmod go-rwx",
		"dir", dir, "mode", fmt.Sprintf("%04o", mode))
	return nil
}

func ownerOf(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return uint32(os.Geteuid())
}
