package statedb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/store/disk"
)

// OpenExisting opens what Open has made before, and makes nothing.
func OpenExisting(o Options, readOnly bool) (*DB, error) {
	if o.FS == nil {
		if err := checkExisting(o.Dir); err != nil {
			return nil, err
		}
	}
	opts := pebbleOptions(o)
	opts.ErrorIfNotExists, opts.ReadOnly = true, readOnly
	// An inspection continues behind a damaged block, and a reset removes it.
	opts.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	db := newDB(o)
	if err := db.open(o, opts); err != nil {
		return nil, existingError(o.Dir, err)
	}
	if err := db.checkWritten(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Copy makes a copy of a state directory in a new one, also while a bridge runs with it, and reads
// the copy, as Check does: it has what was settled when Copy began. A bridge that starts with it
// takes the run for one that a crash ended.
func Copy(ctx context.Context, from, to string) (keys int64, err error) {
	if err := checkExisting(from); err != nil {
		return 0, err
	}
	err = disk.Copy(ctx, from, to, func(dir string) error {
		keys, err = checkCopy(dir)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("copy of state directory %s to %s: %w", from, to, err)
	}
	return keys, nil
}

// checkCopy opens a copy, so that its log becomes a table, and reads all of it.
func checkCopy(dir string) (keys int64, err error) {
	db, err := OpenExisting(Options{Dir: dir}, false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Check()
}

// checkExisting refuses a directory without state before anything is written into it, also a lock.
func checkExisting(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return fmt.Errorf("state directory %s: %w: no bridge has run with it", dir, ErrNoState)
	case err != nil:
		return fmt.Errorf("state directory %s can't be read: %w", dir, err)
	case !disk.HoldsDatabase(entries):
		return fmt.Errorf("state directory %s %w: it holds other files", dir, ErrForeign)
	default:
		return nil
	}
}

// existingError is openError for a user who does not run a bridge, and so does not look for another
// directory.
func existingError(dir string, err error) error {
	known := openError(dir, err)
	switch {
	case errors.Is(known, ErrInUse):
		return fmt.Errorf("state directory %s %w: stop the bridge that runs with it first", dir,
			ErrInUse)
	case disk.RefusalOf(err) == disk.NotWritable:
		return fmt.Errorf("state directory %s can't be locked, which reading it takes too: %w; "+
			"do this as the user that the bridge runs as, or with a copy", dir, err)
	default:
		return known
	}
}

// checkWritten refuses a database that has no format, or another. It writes none.
func (db *DB) checkWritten() error {
	version, err := db.Get(MetaKey("format"))
	switch {
	case err != nil:
		return db.ReadError(err)
	case version == nil:
		return fmt.Errorf("state directory %s %w: its database has no format: no bridge wrote "+
			"it, or its MANIFEST is damaged", db.dir, ErrForeign)
	default:
		return db.checkFormat()
	}
}

// ReadError adds to damage what can be done about it. Pebble's own text has several lines; the
// first is enough.
func (db *DB) ReadError(err error) error {
	if !pebble.IsCorruptionError(err) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	return damagedError(db.dir, what)
}

// Summary is what holds for a state directory as a whole.
type Summary struct {
	Dir string // absolute
	// Format is the format version of the keys and values.
	Format string
	// Cluster is the uid of the cluster's namespace kube-system, "" when the bridge could not read
	// it.
	Cluster string
	// DiskBytes is the size of all files.
	DiskBytes int64
}

// Summary reads what holds for the directory as a whole. The DB must be one of OpenExisting.
func (db *DB) Summary() (Summary, error) {
	format, errFormat := db.Get(MetaKey("format"))
	cluster, errCluster := db.Get(MetaKey("cluster"))
	size, errSize := filesSize(db.disk.inner, db.dir)
	s := Summary{
		Dir: db.Dir(), Format: string(format), Cluster: string(cluster),
		DiskBytes: size,
	}
	return s, db.ReadError(errors.Join(errFormat, errCluster, errSize))
}

// filesSize adds up the files of a database. Pebble's own count leaves out what a reader has not
// replayed.
func filesSize(files vfs.FS, dir string) (total int64, err error) {
	names, err := files.List(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		info, err := files.Stat(files.PathJoin(dir, name))
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// Check reads every table, and checks checksums and order. It returns how many keys there are. It
// ends at the first damage, which is ErrDamaged.
func (db *DB) Check() (keys int64, err error) {
	var stats pebble.CheckLevelsStats
	err = db.pebble.CheckLevels(&stats)
	if known := db.ReadError(err); err == nil || errors.Is(known, ErrDamaged) {
		return stats.NumPoints, known
	}
	return stats.NumPoints, damagedError(db.dir, err.Error())
}

// Identity is whose state a directory has: the cluster, and the secret of what was redacted.
type Identity struct{ db *DB }

// BindCluster remembers whose objects these are (the uid of the namespace kube-system), and refuses
// those of another cluster with ErrOtherCluster. An empty id is not checked.
func (i Identity) BindCluster(id string) error {
	if id == "" {
		return nil
	}
	known, err := i.db.Get(MetaKey("cluster"))
	switch {
	case err != nil:
		return err
	case known == nil:
		return i.db.set(MetaKey("cluster"), []byte(id))
	case string(known) != id:
		return fmt.Errorf("state directory %s %w: it was made with cluster %s, this one is %s; "+
			"give each cluster its own state.dir", i.db.dir, ErrOtherCluster, known, id)
	default:
		return nil
	}
}

// Secret is a random key of this state directory, created at the first call: redacted values are
// hashed with it, so that a change of value stays visible across restarts and the value does not.
func (i Identity) Secret() ([]byte, error) {
	key, err := i.db.Get(MetaKey("secret"))
	if err != nil || key != nil {
		return key, err
	}
	key = make([]byte, 32)
	rand.Read(key)
	return key, i.db.set(MetaKey("secret"), key)
}

// ForgetSecret removes the key that Secret has made, also from the files that held it.
func (i Identity) ForgetSecret() error {
	name := MetaKey("secret")
	key, err := i.db.Get(name)
	if err != nil || key == nil {
		return err
	}
	if err := i.db.pebble.Delete(name, i.db.sync); err != nil {
		return Wrap(err)
	}
	return Wrap(errors.Join(i.db.pebble.Flush(), i.db.pebble.Compact(context.Background(), name,
		append(slices.Clone(name), 0), false)))
}
