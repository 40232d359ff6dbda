package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// Copy makes a copy of a database in a new directory, also while another process writes to it: it
// has what was durable when Copy began. check opens the copy and reads it. A copy that was
// interrupted is a directory to+".partial", which the next one replaces; to itself is complete, or
// does not exist.
func Copy(ctx context.Context, from, to string, check func(dir string) error) error {
	if err := checkAbsent(to); err != nil {
		return err
	}
	partial := filepath.Clean(to) + ".partial"
	const attempts = 5 // the writer may remove a table between two steps
	var err error
	for range attempts {
		err = errors.Join(os.RemoveAll(partial), os.MkdirAll(filepath.Dir(partial), 0o700))
		if err == nil {
			err = copyFiles(from, partial, copyFile)
		}
		if err == nil {
			err = check(partial)
		}
		if err == nil {
			return publish(partial, to)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(err, os.RemoveAll(partial))
}

// checkAbsent refuses to write over anything.
func checkAbsent(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("%s exists; nothing was changed: move it away, or choose another directory", dir)
	}
	return nil
}

// publish syncs a complete copy, and gives it its place.
func publish(partial, to string) error {
	entries, err := os.ReadDir(partial)
	for _, entry := range entries {
		err = cmp.Or(err, syncFile(filepath.Join(partial, entry.Name())))
	}
	if err = cmp.Or(err, syncFile(partial)); err != nil {
		return err
	}
	if err := os.Rename(partial, to); err != nil { // over an empty directory too
		return err
	}
	return syncFile(filepath.Dir(filepath.Clean(to)))
}

// syncFile syncs a file, or the names in a directory.
func syncFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// LinkFiles makes a directory with the files of a database as they are at one moment, also while
// another process writes to it: links to its tables, which never change, and copies of the others.
func LinkFiles(from, to string) error { return copyFiles(from, to, linkFile) }

// copyFiles makes the files of a database as they are at one moment. The order matters:
//
//  1. the record of what is synced: what follows is not older. A log that it names and that is
//     removed before step 2 looks like damage, and the next attempt finds it gone.
//  2. the logs. A log that is flushed after that is in a table, which the list of files then names;
//     one that is written after that is missing, and so are only the newest commits.
//  3. the tables.
//  4. the list of files, with the marker that names it.
//  5. the tables that came between 3 and 4: the list may name them.
//
// addTable makes a table, unless it is there.
func copyFiles(from, to string, addTable func(from, to, name string) error) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if err := copyFile(from, to, SumsFile); err != nil {
		return err
	}
	logs, err := names(from, func(name string) bool { return filepath.Ext(name) == ".log" })
	if err != nil {
		return err
	}
	for _, name := range logs {
		if err := copyFile(from, to, name); err != nil {
			return err
		}
	}
	if err := addTables(from, to, addTable); err != nil {
		return err
	}
	// A list that is replaced meanwhile is gone: the marker comes first.
	lists, err := names(from, func(name string) bool {
		return strings.HasPrefix(name, "marker.") || strings.HasPrefix(name, "MANIFEST-") ||
			strings.HasPrefix(name, "OPTIONS-")
	})
	slices.SortFunc(lists, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, name := range lists {
		err = cmp.Or(err, copyFile(from, to, name))
	}
	return cmp.Or(err, addTables(from, to, addTable))
}

func rank(name string) int {
	if strings.HasPrefix(name, "marker.") {
		return 0
	}
	return 1
}

// names returns the names of a directory's files that are wanted.
func names(dir string, wanted func(name string) bool) (list []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if wanted(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list, err
}

// addTables makes those that are not there yet. One that is gone was replaced by another.
func addTables(from, to string, add func(from, to, name string) error) error {
	tables, err := names(from, func(name string) bool {
		return filepath.Ext(name) == ".sst" || filepath.Ext(name) == ".blob"
	})
	for _, name := range tables {
		addErr := add(from, to, name)
		if addErr != nil && !errors.Is(addErr, os.ErrExist) && !errors.Is(addErr, os.ErrNotExist) {
			return addErr
		}
	}
	return err
}

func linkFile(from, to, name string) error {
	return os.Link(filepath.Join(from, name), filepath.Join(to, name))
}

func copyFile(from, to, name string) error {
	in, err := os.Open(filepath.Join(from, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil // replaced by a later one, or the database can't be opened
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(to, name), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
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
