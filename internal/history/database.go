package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/store/disk"
)

// database is what the parts of a DB share. It is the source of the questions.
type database struct {
	pebble *pebble.DB
	dir    string
	log    *slog.Logger
	units  units
	// failed is closed when the database can't continue; err is why.
	failed chan struct{}
	once   sync.Once
	err    error
	sync   *pebble.WriteOptions
	disk   *disk.FS // nil where a full disk is an error
}

// ReadError adds to damage what can be done about it. The first line of Pebble's own text is
// enough.
func (db *database) ReadError(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) && !errors.Is(err, record.ErrUnreadable) &&
		!errors.Is(err, record.ErrMisfit) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	return damagedError(db.dir, what)
}

// NewIter is Pebble's.
func (db *database) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	return db.pebble.NewIter(o)
}

// Units are all that are known, in the order in which they came.
func (db *database) Units() []*record.Unit { return db.units.all() }

// Unit is the one of a number, nil for none.
func (db *database) Unit(number uint32) *record.Unit { return db.units.numbered(number) }

// checkFormat refuses a database of another format, and writes ours into a new one.
func (db *database) checkFormat(readOnly bool) error {
	version, err := db.get(keys.Meta("format"))
	switch {
	case err != nil:
		return err
	case version == nil && db.isEmpty() && !readOnly:
		return db.pebble.Set(keys.Meta("format"), []byte(FormatVersion), db.sync)
	case version == nil && readOnly && db.isEmpty():
		return fmt.Errorf("history %s: %w: nothing was written to it", db.dir, ErrNone)
	case version == nil:
		return fmt.Errorf("history %s %w: its database is another's, as that of the state directory",
			db.dir, ErrForeign)
	case string(version) != FormatVersion:
		return fmt.Errorf("history %s %w: it has format %q, this bridge reads %q; use the bridge that "+
			"wrote it, or another directory", db.dir, ErrForeign, version, FormatVersion)
	}
	return nil
}

func (db *database) isEmpty() bool {
	it, err := db.pebble.NewIter(nil)
	if err != nil {
		return false
	}
	defer it.Close()
	return !it.First() && it.Error() == nil
}

// get reads a value, nil when there is none. The result is the caller's.
func (db *database) get(key []byte) ([]byte, error) {
	value, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := append([]byte{}, value...)
	return out, closer.Close()
}

// horizonKey has the time before which only the last versions are kept.
var horizonKey = keys.Meta("horizon")

// Horizon is what Coverage.Horizon answers.
func (db *database) Horizon() (time.Time, error) {
	value, err := db.get(horizonKey)
	if err != nil || len(value) != 4 {
		return time.Time{}, db.ReadError(err)
	}
	return time.Unix(int64(binary.BigEndian.Uint32(value)), 0), nil
}

// fail ends everything that waits for the database.
func (db *database) fail(err error) {
	db.once.Do(func() {
		db.err = fmt.Errorf("history %s can't continue: %w", db.dir, err)
		db.log.Error("the history can't continue; see to its disk and restart", "dir", db.dir,
			"err", err)
		close(db.failed)
	})
}

// whileOpening returns as an error what ends the database while it is opened.
func (db *database) whileOpening(open func() (*pebble.DB, error)) (*pebble.DB, error) {
	type opened struct {
		db  *pebble.DB
		err error
	}
	done := make(chan opened, 1)
	go func() {
		p, err := open()
		done <- opened{p, err}
	}()
	select {
	case o := <-done:
		return o.db, o.err
	case <-db.failed:
		return nil, db.err
	}
}

// pebbleLogger passes Pebble's messages on.
type pebbleLogger struct{ db *database }

func (l pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.db.log.Error("history", "message", fmt.Sprintf(format, args...))
}

// Fatalf is called with Pebble's locks held, and must not return: its goroutine stays here.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	message, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	l.db.fail(errors.New(message))
	select {}
}
