package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
		if err = copyFiles(o.Dir, copied, linkFile); err != nil {
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
	if err := copyFile(from, to, disk.SumsFile); err != nil {
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

// Checked is what Check has read.
type Checked struct{ Keys, Objects, Versions int }

// Check reads every table, each version of each object, and all notices. It ends at the first
// damage, which is ErrDamaged.
func (db *DB) Check(ctx context.Context) (c Checked, err error) {
	var stats pebble.CheckLevelsStats
	if err := db.shared.pebble.CheckLevels(&stats); err != nil {
		if known := db.shared.ReadError(err); errors.Is(known, ErrDamaged) {
			return c, known
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
	return c, nil
}

// Copy makes a copy of a history in a new directory, also while another process writes to it, and
// checks the copy: it has what was durable when Copy began. A copy that was interrupted is a
// directory to+".partial", which the next one replaces; to itself is complete, or does not exist.
func Copy(ctx context.Context, from, to string) (Checked, error) {
	if err := checkDir(from, false); err != nil {
		return Checked{}, err
	}
	if err := checkAbsent(to); err != nil {
		return Checked{}, err
	}
	partial := filepath.Clean(to) + ".partial"
	const attempts = 5 // the writer may remove a table between two steps
	var err error
	for range attempts {
		var c Checked
		if err = os.RemoveAll(partial); err == nil {
			err = copyFiles(from, partial, copyFile)
		}
		if err == nil {
			if c, err = checkCopy(ctx, partial); err == nil {
				return c, publish(partial, to)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return Checked{}, fmt.Errorf("copy of history %s to %s: %w", from, to,
		errors.Join(err, os.RemoveAll(partial)))
}

// checkAbsent refuses to write over anything.
func checkAbsent(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("history %s: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("history %s exists; nothing was changed: move it away, or choose another "+
			"directory", dir)
	}
	return nil
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
