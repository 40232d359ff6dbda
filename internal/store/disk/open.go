package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
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
	type opened struct {
		db  *pebble.DB
		err error
	}
	opts.Logger = pebbleLogger{o}
	done := make(chan opened, 1)
	o.opening.Store(true)
	defer o.opening.Store(false)
	go func() {
		db, err := pebble.Open(dir, opts)
		done <- opened{db, err}
	}()
	select {
	case result := <-done:
		return result.db, result.err
	case err := <-o.refused:
		return nil, err
	}
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
	case errors.Is(err, syscall.ENOSPC):
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
