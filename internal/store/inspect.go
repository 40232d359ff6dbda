package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/disk"
)

// Errors that a reader of a state directory decides by.
var (
	// ErrNoState: no bridge has left state in the directory.
	ErrNoState = errors.New("there is no state")
	// ErrDamaged: a file of the database is not what was written.
	ErrDamaged = errors.New("its files are damaged")
)

// Inspector reads a state directory that no bridge has open: for people who want to know what a
// bridge knows. It changes nothing, not even what a crash has left to be replayed. It may be used
// concurrently.
type Inspector struct {
	db    *DB
	files vfs.FS
}

// Inspect opens the state in o.Dir to read it. Unlike Open it creates nothing: without state it
// returns ErrNoState, for something else ErrForeign, and while a bridge runs ErrInUse. It holds the
// directory until Close.
func Inspect(o Options) (*Inspector, error) {
	db, err := openExisting(o, true)
	if err != nil {
		return nil, err
	}
	in := &Inspector{db: db, files: o.FS}
	if in.files == nil {
		in.files = vfs.Default
	}
	return in, nil
}

// openExisting opens what Open has made before, and makes nothing.
func openExisting(o Options, readOnly bool) (*DB, error) {
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
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("state directory %s can't be locked, which reading it takes too: %w; "+
			"do this as the user that the bridge runs as, or with a copy", dir, err)
	default:
		return known
	}
}

// checkWritten refuses a database that has no format, or another. It writes none.
func (db *DB) checkWritten() error {
	version, err := db.get(metaKey("format"))
	switch {
	case err != nil:
		return db.readError(err)
	case version == nil:
		return fmt.Errorf("state directory %s %w: its database has no format: no bridge wrote "+
			"it, or its MANIFEST is damaged", db.dir, ErrForeign)
	default:
		return db.checkFormat()
	}
}

// readError adds to damage what can be done about it. Pebble's own text has several lines; the
// first is enough.
func (db *DB) readError(err error) error {
	if !pebble.IsCorruptionError(err) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	return damagedError(db.dir, what)
}

// Close releases the directory. A second call does nothing.
func (in *Inspector) Close() error { return in.db.Close() }

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

// Summary reads what holds for the whole directory.
func (in *Inspector) Summary() (Summary, error) {
	format, errFormat := in.db.get(metaKey("format"))
	cluster, errCluster := in.db.get(metaKey("cluster"))
	size, errSize := filesSize(in.files, in.db.dir)
	s := Summary{
		Dir: in.db.Dir(), Format: string(format), Cluster: string(cluster),
		DiskBytes: size,
	}
	return s, in.db.readError(errors.Join(errFormat, errCluster, errSize))
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

// Units lists the units of informers that have state here, by name, whether or not a configuration
// still has them.
func (in *Inspector) Units() ([]Unit, error) {
	it, err := in.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: []byte{spaceInformer},
		UpperBound: []byte{spaceInformer + 1},
	})
	if err != nil {
		return nil, wrap(err)
	}
	defer it.Close()
	var units []Unit
	for it.First(); it.Valid(); it.Next() {
		name, value := string(it.Key()[1:]), it.Value()
		if len(value) < 4 {
			return nil, fmt.Errorf("state of informer %s: its entry does not parse; %s is "+
				"damaged: restore it from a copy, or move it away to start with a new "+
				"snapshot", name, in.db.dir)
		}
		units = append(units, Unit{
			Name: name, Scope: string(value[4:]),
			ix: &Indexer{
				db: in.db, id: binary.BigEndian.Uint32(value),
				cfg: IndexerConfig{Name: name},
			},
		})
	}
	if err := it.Error(); err != nil {
		return nil, in.db.readError(wrap(err))
	}
	return units, nil
}
