package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/store/disk"
)

// Read opens a history to ask it. It creates nothing in an empty directory, and needs no writer to
// stop: where another process writes, it reads what is durable at this moment. Append fails.
func Read(o Options) (*DB, error) {
	if o.FS != nil {
		return open(o, true)
	}
	if err := checkDir(o.Dir, false); err != nil {
		return nil, err
	}
	db, err := open(o, true)
	if !errors.Is(err, ErrInUse) {
		return db, err
	}
	return readBeside(o)
}

// ReadBeside is Read for a process that asks for long: a writer can start meanwhile. It sees what
// was durable when it began.
func ReadBeside(o Options) (*DB, error) {
	if err := checkDir(o.Dir, false); err != nil {
		return nil, err
	}
	return readBeside(o)
}

// readBeside opens a copy of the files that a writer has open: links to its tables, which never
// change, and copies of its logs and of the list of its files.
func readBeside(o Options) (*DB, error) {
	removeAbandoned(o.Dir)
	copied := filepath.Join(o.Dir,
		readerPrefix+strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(uint64(readers.Add(1)), 10))
	const attempts = 5 // the writer may remove a table between two steps
	var err error
	for range attempts {
		if err = disk.LinkFiles(o.Dir, copied); err != nil {
			_ = os.RemoveAll(copied) // what is left is removed by the next reader
			continue
		}
		beside := o
		beside.Dir = copied
		db, openErr := open(beside, true)
		if openErr == nil {
			db.shared.dir = o.Dir
			closed := db.close
			db.close = func() error { return errors.Join(closed(), os.RemoveAll(copied)) }
			return db, nil
		}
		err = errors.Join(openErr, os.RemoveAll(copied))
	}
	return nil, fmt.Errorf("history %s is written by another process, and can't be read beside it: %w",
		o.Dir, err)
}

// readerPrefix begins the names of the directories of readers.
const readerPrefix = "reader-"

// readers counts the readers of this process.
var readers atomic.Uint32

// removeAbandoned removes the directories of readers that were killed.
func removeAbandoned(dir string) {
	found, _ := filepath.Glob(filepath.Join(dir, readerPrefix+"*"))
	for _, path := range found {
		process, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), readerPrefix), "-")
		pid, err := strconv.Atoi(process)
		if err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(path) // somebody else may have done so
		}
	}
}

// Checked is what Check has read.
type Checked struct{ Keys, Objects, Versions int }

// Check reads every table, each version of each object, all notices and requests. It ends at the
// first damage, which is ErrDamaged.
func (db *DB) Check(ctx context.Context) (c Checked, err error) {
	var stats pebble.CheckLevelsStats
	if err := db.shared.pebble.CheckLevels(&stats); err != nil {
		if known := db.shared.ReadError(err); errors.Is(known, ErrDamaged) {
			return c, cmp.Or(db.Damage(), known)
		}
		return c, damagedError(db.shared.dir, err.Error())
	}
	c.Keys = int(stats.NumPoints)
	for _, u := range db.Questions.Resources.Units() {
		for _, err := range db.Questions.Coverage.Notices(u, time.Time{}, time.Time{}) {
			if err != nil {
				return c, err
			}
		}
		for o, err := range db.Questions.Objects.All(u, "") {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return c, err
			}
			c.Objects++
			for _, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				if err != nil {
					return c, err
				}
				c.Versions++
			}
		}
	}
	return c, db.shared.ReadError(db.Requests.check(ctx))
}

// Copy makes a copy of a history in a new directory, also while another process writes to it, and
// checks the copy: it has what was durable when Copy began.
func Copy(ctx context.Context, from, to string) (c Checked, err error) {
	if err := checkDir(from, false); err != nil {
		return c, err
	}
	err = disk.Copy(ctx, from, to, func(dir string) error {
		c, err = checkCopy(ctx, dir)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("copy of history %s to %s: %w", from, to, err)
	}
	return c, nil
}

// checkCopy opens a copy, so that its log becomes a table, and reads all of it.
func checkCopy(ctx context.Context, dir string) (c Checked, err error) {
	db, err := open(Options{Dir: dir}, false)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Check(ctx)
}
