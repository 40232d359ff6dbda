package statedb

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// fatal is what happens when Pebble can't continue. It reports that from deep within, with locks
// held, and must not get control back; so the goroutine stays there, and another one has to end the
// process.
type fatal struct {
	log     *slog.Logger
	report  func(error)
	once    sync.Once
	opening atomic.Bool
	refused chan error // why the database can't be opened
}

func newFatal(report func(error), log *slog.Logger) *fatal {
	if report == nil {
		report = func(err error) {
			log.Error("the state database can't continue", "err", err)
			os.Exit(1)
		}
	}
	return &fatal{log: log, report: report, refused: make(chan error, 1)}
}

// whileOpening returns as an error what is fatal while a database is opened: nothing runs on it
// yet.
func (f *fatal) whileOpening(open func() (*pebble.DB, error)) (*pebble.DB, error) {
	type opened struct {
		db  *pebble.DB
		err error
	}
	done := make(chan opened, 1)
	f.opening.Store(true)
	defer f.opening.Store(false)
	go func() {
		db, err := open()
		done <- opened{db, err}
	}()
	select {
	case o := <-done:
		return o.db, o.err
	case err := <-f.refused:
		return nil, err
	}
}

// because ends everything.
func (f *fatal) because(err error) {
	if f.opening.Load() {
		select {
		case f.refused <- err:
		default: // one reason is enough
		}
		return
	}
	f.once.Do(func() { f.report(err) })
}

// damaged is called when a file is not as it was written, whoever reads it.
func (db *DB) damaged(info pebble.DataCorruptionInfo) {
	what, _, _ := strings.Cut(fmt.Sprint(info.Details), "\n")
	db.fatal.because(damagedError(db.dir, fmt.Sprintf("%s: %s", path.Base(info.Path), what)))
}

// damagedError adds what can be done about damage.
func damagedError(dir, what string) error {
	return fmt.Errorf("state directory %s: %w: %s; nothing was changed: restore it from a copy, "+
		"or move it away to start with a new snapshot", dir, ErrDamaged, strings.TrimPrefix(what,
		"state database: "))
}

// pebbleLogger passes Pebble's messages on. Its many Infof are useful to a debugger only.
type pebbleLogger struct {
	log   *slog.Logger
	fatal *fatal
}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf is called when Pebble's log or its list of files can't be written. There is nothing to
// save: what is settled is on disk.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := &fatalError{message: fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	l.fatal.because(err)
	select {}
}

// fatalError is a message of Pebble's with its cause.
type fatalError struct {
	message string
	cause   error
}

func (e *fatalError) Error() string {
	first, _, _ := strings.Cut(e.message, "\n")
	return "state database: " + first
}

func (e *fatalError) Unwrap() error { return e.cause }
