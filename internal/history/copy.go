package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

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
